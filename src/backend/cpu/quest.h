// Quest: which blocks of a table a decode row reads. Every block's keys have element-wise bounds;
// they give an upper bound of q . k for the block, and only the blocks with the highest are read.
// (Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", with one
// choice for all query heads of a KV head: the group's maximum.)
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cpu/kv_arena.h"
#include "backend/cpu/memory.h"
#include "kernels/kernels.h"

namespace pagefold::cpu {

// Element-wise minimum and maximum of the keys of every block, as stored (rotated by Hadamard where
// they are, fp8 without the layer's scale, which changes no order): float32 [block id][lo,
// hi][head_dim]. Memory is touched as blocks are written.
class PageBounds {
 public:
  Status init(const kernels::KvLayout& layout, uint32_t n_blocks);
  bool enabled() const { return pages_.data() != nullptr; }
  uint64_t bytes_per_block() const { return enabled() ? 2 * sizeof(float) * dim() : 0; }
  const float* data() const { return reinterpret_cast<const float*>(pages_.data()); }
  const float* lo(BlockId block) const { return data() + block * 2 * dim(); }
  const float* hi(BlockId block) const { return lo(block) + dim(); }

  // Takes in `rows` keys that went to slots first_slot, first_slot + 1, ... of a table. Types that
  // store another value than the rounded key are read back from the arena.
  void append(const kernels::Kernels& k, const KvArena& arena, const BlockId* blocks,
              int64_t first_slot, int rows, const float* keys, int64_t ld);
  // Computes the bounds of blocks [first, first + count) of a table anew, from their slots before
  // `filled`, the table's length.
  void refresh(const kernels::Kernels& k, const KvArena& arena, const BlockId* blocks,
               int64_t first, int64_t count, int64_t filled);
  void copy(BlockId from, BlockId to) { std::copy_n(lo(from), 2 * dim(), at(to)); }

 private:
  size_t dim() const { return static_cast<size_t>(layout_.head_dim); }
  float* at(BlockId block) {
    return reinterpret_cast<float*>(pages_.data()) + size_t{block} * 2 * dim();
  }
  kernels::KvLayout layout_;
  Pages pages_;
};

// Indices of the `keep` best of `scores`, ascending: the last always, the first `first_kept` too,
// then the highest; equal scores: the lower index. keep <= scores.size(). order: scratch, gets the
// result.
void select_pages(std::span<const float> scores, int64_t keep, int64_t first_kept,
                  std::vector<int32_t>& order);

// The selected blocks of one table in a step.
struct PageSelection {
  std::vector<float> scores;
  std::vector<int32_t> index;   // of the blocks in the table, ascending; empty: all are read
  std::vector<BlockId> blocks;  // their ids
};
// Selects `keep` of the n_blocks blocks of a table; all when there are no more.
void select_blocks(const kernels::Kernels& k, const PageBounds& bounds, const BlockId* blocks,
                   int64_t n_blocks, int64_t keep, int64_t first_kept, const float* q, int group,
                   int head_dim, PageSelection& out);

}  // namespace pagefold::cpu
