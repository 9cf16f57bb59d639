// The bytes of all blocks: one reserved address range, committed by the first write to a page.
#pragma once

#include <span>
#include <vector>

#include "backend/cpu/memory.h"
#include "kernels/paged.h"
#include "kv/table.h"

namespace pagefold::cpu {

class KvArena {
 public:
  Status init(const kernels::KvLayout& layout, uint32_t n_blocks);
  const kernels::KvLayout& layout() const { return layout_; }
  std::byte* base() const { return pages_.data(); }
  uint64_t block_bytes() const { return layout_.block_bytes(); }
  // Bytes of the arena that are in physical memory now.
  uint64_t resident_bytes() const;

 private:
  kernels::KvLayout layout_;
  Pages pages_;
};

}  // namespace pagefold::cpu
