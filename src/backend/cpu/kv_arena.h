// The bytes of all blocks: one reserved range of addresses of which only what is needed lies in
// physical memory. The arena knows which blocks are taken and which pages are committed:
//   take()     commits the pages of blocks handed out, at least kCommitBytes a system call
//   free()     only counts: a page is spare once no taken block touches it
//   release()  gives spare pages back in runs, highest addresses first (the pool hands out the
//              lowest free blocks first, so what stays is what is used next)
// Small pages unless huge ones are asked for: a huge page is pinned by any one of its blocks, so
// memory then comes and goes 2 MiB at a time. All counts are of whole pages.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/memory.h"
#include "kernels/paged.h"
#include "kv/table.h"

namespace pagefold::cpu {

class KvArena {
 public:
  static constexpr size_t kCommitBytes = size_t{256} << 10;

  Status init(const kernels::KvLayout& layout, uint32_t n_blocks, bool huge_pages = false);
  // For what lies beside the blocks' keys and values, under the same ids: no layout.
  Status init(uint64_t block_bytes, uint32_t n_blocks, bool huge_pages = false);
  const kernels::KvLayout& layout() const { return layout_; }
  std::byte* base() const { return pages_.data(); }
  uint64_t block_bytes() const { return block_bytes_; }
  bool is_taken(BlockId block) const { return bit(taken_, block); }

  // Blocks already taken (freed) are left alone. Error: the system has no memory; the blocks that
  // could not be committed are not taken.
  Status take(std::span<const BlockId> blocks);
  void free(std::span<const BlockId> blocks);
  // See Backend::release_kv.
  uint64_t release(uint64_t reserve_bytes, uint64_t least_bytes);

  // Pages committed by take() and not released. Pages that were written without take() are not
  // counted.
  uint64_t committed_bytes() const { return memory_.committed_bytes; }
  const KvMemory& memory() const { return memory_; }

 private:
  struct PageRange {
    size_t first, end;
  };
  PageRange pages_of(BlockId block) const;
  Status commit(size_t page);
  uint64_t release_run(size_t first, size_t end);
  bool bit(const std::vector<uint64_t>& bits, size_t i) const {
    return (bits[i / 64] >> (i % 64) & 1) != 0;
  }

  kernels::KvLayout layout_;
  uint64_t block_bytes_ = 0;
  size_t page_bytes_ = kSmallPage;
  Pages pages_;
  size_t n_pages_ = 0;
  std::vector<uint64_t> taken_;      // a bit a block
  std::vector<uint64_t> committed_;  // a bit a page
  std::vector<uint64_t> spare_;      // a bit a page: committed, and no taken block touches it
  std::vector<uint32_t> users_;      // [pages] taken blocks that touch it
  KvMemory memory_;
};

}  // namespace pagefold::cpu
