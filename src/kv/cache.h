// The cache of one sequence as numbers: a table of blocks for every (layer, KV head).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/moves.h"
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

// Lengths and live masks of a cache without its blocks: what a pause keeps.
struct CacheLengths {
  std::vector<int64_t> len, start;          // [n_tables]
  std::vector<std::vector<uint32_t>> live;  // [n_tables], empty: all live
  bool tainted = false;
};

// Blocks of a table are counted from slot 0; those that left a sliding window, or died whole under
// packing `off`, are kNoBlock. A step is: reserve(rows), forward, commit(rows). Every method that
// gives blocks back appends the ids that became free to `freed`. Blocks with several owners are
// never written: reserve() replaces a shared partial last block, compaction replaces what it
// writes.
class SequenceCache {
 public:
  // Keeps a reference to `shape`. Up to `expected_slots` slots, tables are allocated once, at the
  // first reserve; their pages are touched as they fill.
  explicit SequenceCache(const CacheShape& shape, int64_t expected_slots = 0);
  SequenceCache(const SequenceCache&) = delete;
  SequenceCache& operator=(const SequenceCache&) = delete;
  ~SequenceCache();  // must hold no blocks

  // Blocks that reserve(rows) would take from the pool, at most (a last block that was shared by
  // fork() counts although its other owner may be gone).
  int64_t blocks_needed(int64_t rows) const;
  // Extends every table to ceil((len + rows) / block_size) blocks. All or nothing.
  [[nodiscard]] bool reserve(BlockPool& pool, int64_t rows);
  // Copies that reserve() ordered, to be done before the rows are written. Empty without forks.
  std::span<const BlockCopy> pending_copies() const { return copies_; }
  // `rows` slots were filled; blocks wholly before the windows go back. The same in two steps for
  // who publishes full blocks in between.
  void commit(BlockPool& pool, int64_t rows, std::vector<BlockId>& freed) {
    fill(rows);
    leave_windows(pool, freed);
  }
  void fill(int64_t rows);
  void leave_windows(BlockPool& pool, std::vector<BlockId>& freed);
  // Gives everything back; the cache is empty and may be filled again.
  void free_all(BlockPool& pool, std::vector<BlockId>& freed);

  // --- sharing ---
  // One full block for every table, which gets one owner more; lengths grow by a block. Only while
  // all tables are full blocks and nothing was compacted.
  void adopt(BlockPool& pool, const BlockId* group);
  // The same of a chain of groups, into an empty cache. Blocks that lie before a layer's window at
  // that length are left out (and may be kNoBlock).
  void adopt_chain(BlockPool& pool, std::span<const BlockId* const> groups);
  // `child` (empty, same shape) gets the same tables; every block one owner more.
  void fork(BlockPool& pool, SequenceCache& child);

  // --- pause ---
  CacheLengths lengths() const;
  // All blocks that hold slots, table by table, and how many slots of each are filled.
  void collect_blocks(std::vector<BlockId>& blocks, std::vector<int32_t>& filled) const;
  // Into an empty cache: blocks for these lengths, contents to be filled in. All or nothing.
  // shared: the first blocks of every table as a prefix index has them, for tables that were never
  // compacted; they are shared where they are needed and there.
  [[nodiscard]] bool restore(BlockPool& pool, const CacheLengths& lengths,
                             std::span<const BlockId* const> shared = {});

  // --- compaction: called by Compactor ---
  // Takes the fresh blocks of t.copies: fills in their ids and t.blocks. False: short of blocks,
  // none taken.
  [[nodiscard]] bool take_copies(BlockPool& pool, MovePlan& plan);
  // After the bytes moved: shrinks lengths and frees what is left over. Taints.
  void apply(BlockPool& pool, const MovePlan& plan, std::vector<BlockId>& freed);

  // [n_layers][n_kv_heads], valid until the next call of a non-const method.
  const TableView* tables() const { return views_.data(); }
  const TableView& table(int layer, int head) const {
    return views_[static_cast<size_t>(layer * shape_.n_kv_heads + head)];
  }
  const CacheShape& shape() const { return shape_; }
  int64_t held_blocks() const { return held_; }
  int64_t held_slots() const;           // live slots still held, summed over tables
  int64_t live_slots(int table) const;  // without dead and windowed-out ones
  // Has evicted, or read sparsely: publishes nothing more.
  bool tainted() const { return tainted_; }
  void taint() { tainted_ = true; }
  // PF_CHECK: blocks match lengths, every block has an owner. For tests and debug builds.
  void check_invariants(const BlockPool& pool) const;

 private:
  int64_t blocks_for(int64_t slots) const {
    return (slots + shape_.block_size - 1) / shape_.block_size;
  }
  bool partial_tail(size_t t) const { return views_[t].len % shape_.block_size != 0; }
  // First block that a window over `slots` slots still reaches; 0 without a window.
  int64_t window_block(size_t t, int64_t slots) const;
  void grow_capacity(int64_t blocks);
  void grow_live(size_t t, int64_t slots);
  void release(BlockPool& pool, BlockId& id, std::vector<BlockId>& freed);
  void apply_table(BlockPool& pool, const TableMoves& moves, std::vector<BlockId>& freed);
  void mark_dead(BlockPool& pool, size_t t, const TableMoves& moves, std::vector<BlockId>& freed);
  BlockId* ids(size_t table) { return ids_.get() + table * static_cast<size_t>(capacity_); }
  const BlockId* ids(size_t table) const {
    return ids_.get() + table * static_cast<size_t>(capacity_);
  }

  const CacheShape& shape_;
  const int64_t expected_slots_;
  std::unique_ptr<BlockId[]> ids_;           // [n_tables][capacity]
  int64_t capacity_ = 0;                     // ids a table
  std::vector<int64_t> blocks_;              // [n_tables] ids in use, kNoBlock ones included
  std::vector<TableView> views_;             // [n_tables]
  std::vector<std::vector<uint32_t>> live_;  // [n_tables] under packing `off`, else empty
  std::vector<int64_t> dead_;                // [n_tables] dead slots, or empty
  std::vector<BlockCopy> copies_;
  int64_t held_ = 0;
  bool tail_shared_ = false;  // a partial last block may have another owner
  bool tainted_ = false;
};

}  // namespace pagefold
