// The cache of one sequence as numbers: a table of blocks for every (layer, KV head).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/table.h"

namespace pagefold {

// What all sequences of a pool have in common.
struct CacheShape {
  int n_layers = 0, n_kv_heads = 0;
  int block_size = 16;
  std::vector<int64_t> layer_window;  // [n_layers] in slots, 0 = full attention

  int n_tables() const { return n_layers * n_kv_heads; }
  // Most blocks a sequence of `slots` slots holds at any time when it grows by at most `step_rows`
  // rows a step.
  int64_t peak_blocks(int64_t slots, int64_t step_rows) const;
};

// Blocks of a table are counted from slot 0; those that left a sliding window are kNoBlock.
// A step is: reserve(rows), forward, commit(rows). Every method that gives blocks back appends the
// ids that became free to `freed`.
class SequenceCache {
 public:
  // Keeps a reference to `shape`. Up to `expected_slots` slots, tables are allocated once, at the
  // first reserve; their pages are touched as they fill.
  explicit SequenceCache(const CacheShape& shape, int64_t expected_slots = 0);
  SequenceCache(const SequenceCache&) = delete;
  SequenceCache& operator=(const SequenceCache&) = delete;
  ~SequenceCache();  // must hold no blocks

  // Blocks that reserve(rows) would take from the pool.
  int64_t blocks_needed(int64_t rows) const;
  // Extends every table to ceil((len + rows) / block_size) blocks. All or nothing.
  [[nodiscard]] bool reserve(BlockPool& pool, int64_t rows);
  // `rows` slots were filled; blocks wholly before the windows go back.
  void commit(BlockPool& pool, int64_t rows, std::vector<BlockId>& freed);
  // Gives everything back; the cache is empty and may be filled again.
  void free_all(BlockPool& pool, std::vector<BlockId>& freed);

  // [n_layers][n_kv_heads], valid until the next call of a non-const method.
  const TableView* tables() const { return views_.data(); }
  const TableView& table(int layer, int head) const {
    return views_[static_cast<size_t>(layer * shape_.n_kv_heads + head)];
  }
  int64_t held_blocks() const { return held_; }
  int64_t held_slots() const;  // filled slots still held, summed over tables

 private:
  int64_t blocks_for(int64_t slots) const {
    return (slots + shape_.block_size - 1) / shape_.block_size;
  }
  void grow_capacity(int64_t blocks);
  BlockId* ids(size_t table) { return ids_.get() + table * static_cast<size_t>(capacity_); }

  const CacheShape& shape_;
  const int64_t expected_slots_;
  std::unique_ptr<BlockId[]> ids_;  // [n_tables][capacity]
  int64_t capacity_ = 0;            // ids a table
  std::vector<int64_t> blocks_;     // [n_tables] ids in use, kNoBlock ones included
  std::vector<TableView> views_;    // [n_tables]
  int64_t held_ = 0;
};

}  // namespace pagefold
