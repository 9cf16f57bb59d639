// The pool of cache blocks as numbers: which are free, and how many owners the others have.
// Not thread-safe: the engine thread owns it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "kv/table.h"

namespace pagefold {

// Free blocks are bits of a tree of 64-bit words (a word of level i + 1 says which words of level i
// have a bit), so that the lowest free block is found in a handful of steps for any pool. Lowest
// first gives ascending, mostly contiguous runs to one table and keeps the used part of the arena
// dense.
class BlockPool {
 public:
  explicit BlockPool(uint32_t n_blocks);

  // Fills `out` with the lowest free blocks in ascending order, one owner each. False and no change
  // when fewer are free.
  [[nodiscard]] bool allocate(std::span<BlockId> out);
  // One more owner of a block in use.
  void share(BlockId block);
  // One owner less. True: that was the last one, and the block is free.
  bool release(BlockId block);

  // The prefix index becomes one more owner of a block in use (at most once), and lets go of it.
  void hold(BlockId block);
  bool unhold(BlockId block);  // true: it was the last owner, and the block is free
  bool is_held(BlockId block) const { return (held_[block / 64] >> (block % 64) & 1) != 0; }
  // Blocks that nobody but the index owns.
  uint32_t idle_count() const { return idle_; }

  // From now on allocate() also appends the ids to `log`, for whoever commits their memory. Null:
  // no more.
  void log_taken(std::vector<BlockId>* log) { log_ = log; }

  uint32_t total() const { return total_; }
  uint32_t free_count() const { return free_; }
  uint32_t used_count() const { return total_ - free_; }
  uint32_t owners(BlockId block) const;
  // Recounts everything; PF_CHECK on a broken tree or count. For tests and debug builds.
  void check_invariants() const;

 private:
  BlockId take_lowest();
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };

  uint32_t total_, free_, idle_ = 0;
  std::vector<BlockId>* log_ = nullptr;
  std::vector<std::vector<uint64_t>> levels_;  // [0] = one bit a block, back() = one word
  std::vector<uint64_t> held_;                 // a bit a block: the index is an owner
  // calloc, so that the counts of blocks never used cost no memory.
  std::unique_ptr<uint32_t[], Free> owners_;  // [total]
};

}  // namespace pagefold
