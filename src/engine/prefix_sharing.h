// The prefix cache as the engine runs it: how much of a prompt a request may take from the index,
// and what it publishes itself.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sequence.h"
#include "kv/prefix.h"

namespace pagefold {

class PrefixSharing {
 public:
  PrefixSharing(const EngineConfig& config, const CacheShape& shape, uint64_t block_bytes,
                BlockPool& pool);

  bool enabled() const { return index_.accepts(); }
  PrefixIndex& index() { return index_; }

  // --- admission ---
  // What is there for a sequence that has computed nothing. Its compression must exist if its plan
  // evicts.
  PrefixIndex::Hit find(const Sequence& s) const;
  // The same for a spilled sequence: of what it had computed, whatever its policy must observe.
  PrefixIndex::Hit find_spilled(const Sequence& s) const;
  // A running sequence will soon publish more of what `s` begins with than `hit` has.
  bool comes_soon(const Sequence& running, const Sequence& s, const PrefixIndex::Hit& hit) const;
  // The sequence takes the blocks of the hit: its first tokens count as computed.
  void adopt(Sequence& s, const PrefixIndex::Hit& hit);

  // --- steps ---
  // After the rows of a step were filled in (and before a window or a compaction gives blocks up):
  // the full blocks of a sequence that has computed nothing but what the full model would.
  void publish(Sequence& s, Clock::time_point now, std::vector<BlockId>& freed);
  // The sequence is about to give its blocks back.
  void leaving(const Sequence& s, Clock::time_point now) { index_.touch(s.prefix, now); }
  // From now on blocks must carry more than those of `s` do (bounds of their keys).
  void stop_publishing(Sequence& s) const { s.publishes = false; }

  uint64_t queries() const { return queries_; }  // tokens
  uint64_t hits() const { return hits_; }

 private:
  // Tokens of the prefix that need not be computed; the second: but for the policy.
  int64_t limit_of(const Sequence& s) const;
  int64_t limit_of_any(const Sequence& s) const;

  const CacheShape& shape_;
  BlockPool& pool_;
  PrefixIndex index_;
  uint64_t queries_ = 0, hits_ = 0;
};

}  // namespace pagefold
