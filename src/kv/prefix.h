// The prefix index: which blocks hold the keys and values of which token prefixes, so that a
// request that begins like an earlier one shares them instead of computing them.
//
// An entry stands for `block_size` tokens of a prefix and holds one block of every (layer, KV
// head), as one more owner of each. It hangs below the entry of the tokens before it. Entries are
// found by a hash over the chain, but a hit needs the same parent, the same tokens and, at the
// root, the same salt: a collision costs time, never an answer. Not thread-safe: the engine thread
// owns it.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kv/block_pool.h"
#include "kv/cache.h"

namespace pagefold {

class PrefixIndex {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Limits {
    int64_t max_entries = 0;                  // 0: nothing is ever published
    std::chrono::nanoseconds time_to_live{};  // since the last use; 0: for ever
  };
  // What a sequence remembers: its first `blocks` blocks are, or were, in the index, the last of
  // them as entry `slot` of that generation.
  struct Cursor {
    uint32_t slot = kNone, generation = 0;
    int64_t blocks = 0;
  };
  struct Hit {
    Cursor cursor;
    std::vector<const BlockId*> groups;  // [blocks][n_tables], until the next non-const call
    int64_t blocks() const { return cursor.blocks; }
  };
  struct Counts {
    uint64_t published = 0, reclaimed = 0, expired = 0;  // entries
  };

  // Keeps references. seed: of the hashes, so that nobody can make them collide; hash_mask: bits of
  // them that are used (tests let all of them collide).
  PrefixIndex(const CacheShape& shape, BlockPool& pool, Limits limits, uint64_t seed,
              uint64_t hash_mask = ~uint64_t{0});
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;
  ~PrefixIndex();  // must be empty: clear() first

  // The longest published prefix of `tokens`, at most `most_blocks` blocks of it. Layers with a
  // sliding window need only the blocks that the window over the prefix reaches.
  Hit find(std::string_view salt, std::span<const int32_t> tokens, int64_t most_blocks) const;

  // Publishes the full blocks of `cache`, which hold `tokens` from the first on and nothing else.
  // Where an entry exists already it stays, and the sequence's own copy is its own affair. When
  // the index is full, the entries that were not used for longest give way.
  void publish(std::string_view salt, std::span<const int32_t> tokens, const SequenceCache& cache,
               Time now, Cursor& cursor, std::vector<BlockId>& freed);
  // The entries up to the cursor's were used now.
  void touch(const Cursor& cursor, Time now);

  // Removes what was not used for longest until `wanted` blocks of the pool are free; entries whose
  // blocks are all in use elsewhere only if that is not enough. False: it cannot be done.
  bool reclaim(int64_t wanted, std::vector<BlockId>& freed);
  // Removes the entry that was not used for longest. False: there is none.
  bool drop_oldest(std::vector<BlockId>& freed);
  // Removes what outlived its time. Entries that a sequence shares count as used.
  void expire(Time now, std::vector<BlockId>& freed);
  // When expire() may have something to do; Time::max(): never.
  Time next_expiry() const;
  void clear(std::vector<BlockId>& freed);

  int64_t entries() const { return n_entries_; }
  bool accepts() const { return limits_.max_entries > 0; }
  const Counts& counts() const { return counts_; }
  // Blocks of the hit that somebody else than the index owns too.
  int64_t shared_blocks(const Hit& hit) const;
  // PF_CHECK: the order of use, the counts and the owners. For tests and debug builds.
  void check_invariants() const;

 private:
  static constexpr uint32_t kNone = 0xffffffffu;
  struct Entry {
    uint64_t hash = 0;
    uint32_t parent = kNone, children = 0, generation = 0;
    uint32_t older = kNone, newer = kNone;  // by use; an entry is never older than its children
    bool live = false;
    Time used{};
    std::string salt;  // of roots
  };

  uint64_t hash_of(uint64_t parent_hash, std::string_view salt,
                   std::span<const int32_t> tokens) const;
  uint32_t child(uint32_t parent, uint64_t hash, std::string_view salt,
                 std::span<const int32_t> tokens) const;
  uint32_t insert(uint32_t parent, uint64_t hash, std::string_view salt,
                  std::span<const int32_t> tokens, Time now);
  bool make_room(uint32_t keep, std::vector<BlockId>& freed);
  void hold_blocks(uint32_t slot, const SequenceCache& cache, int64_t block);
  void remove(uint32_t slot, std::vector<BlockId>& freed);
  void link_before(uint32_t slot, uint32_t newer);
  void unlink(uint32_t slot);
  void touch_chain(uint32_t slot, Time now);
  bool valid(const Cursor& c) const;
  bool windows_present(const Hit& hit, int64_t blocks) const;
  bool in_use(uint32_t slot) const;          // some block of it has another owner
  int64_t sole_blocks(uint32_t slot) const;  // blocks that only the index owns

  size_t n_tables() const { return static_cast<size_t>(shape_.n_tables()); }
  size_t block_tokens() const { return static_cast<size_t>(shape_.block_size); }
  BlockId* group(uint32_t slot) { return blocks_.data() + slot * n_tables(); }
  const BlockId* group(uint32_t slot) const { return blocks_.data() + slot * n_tables(); }
  std::span<const int32_t> tokens_of(uint32_t slot) const {
    return {tokens_.data() + slot * block_tokens(), block_tokens()};
  }

  const CacheShape& shape_;
  BlockPool& pool_;
  const Limits limits_;
  const uint64_t seed_, hash_mask_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> unused_;  // slots of entries_
  std::vector<BlockId> blocks_;   // [slots][n_tables], kNoBlock: was outside its window
  std::vector<int32_t> tokens_;   // [slots][block_size]
  std::unordered_multimap<uint64_t, uint32_t> by_hash_;
  uint32_t oldest_ = kNone, newest_ = kNone;
  int64_t n_entries_ = 0;
  Counts counts_;
};

}  // namespace pagefold
