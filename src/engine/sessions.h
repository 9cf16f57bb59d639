// Conversations between two turns. A request that names a session (kv.session) leaves its cache
// here when its answer is done: tables, positions and the policy's memory as they are, compressed
// or not. The next request of the same name whose prompt begins with exactly these tokens goes on
// from them and reads only the rest; otherwise the session ends and the prompt is read anew.
//
// A session is taken out while a request uses it, so a second request at the same time reads its
// prompt anew; whichever ends last is what is kept. Sessions hold blocks of the pool: they are
// given up, the one that was not used for longest first, before any running sequence is paused.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sequence.h"
#include "kv/block_pool.h"

namespace pagefold {

class SessionStore {
 public:
  struct Counts {
    uint64_t continued = 0, reread = 0, reclaimed = 0, expired = 0;
    uint64_t tokens = 0;  // that were not read again
  };

  SessionStore(const EngineConfig& config, const CacheShape& shape, const KvModel& kv,
               BlockPool& pool, uint64_t block_bytes);
  ~SessionStore();  // must be empty: clear() first

  // Keeps the cache of a sequence that ended, instead of giving its blocks back. What was kept
  // under its name before ends; so do others, when all of them take more bytes than they may.
  void keep(std::unique_ptr<Sequence> s, Clock::time_point now, std::vector<BlockId>& freed);

  // The session that `s`, which has computed nothing, may go on from; null: none. One that does not
  // suit ends here; s.session_note says why. Valid until the next non-const call.
  const Sequence* match(Sequence& s, std::vector<BlockId>& freed);
  // `s` goes on from what match() found: its first tokens count as computed.
  void adopt(Sequence& s, std::vector<BlockId>& freed);

  // Gives up the session that was not used for longest, but not `but`. False: there is none.
  bool drop_oldest(std::vector<BlockId>& freed, const Sequence* but = nullptr);
  void expire(Clock::time_point now, std::vector<BlockId>& freed);
  Clock::time_point next_expiry() const;  // max(): never
  void clear(std::vector<BlockId>& freed);

  template <class F>
  void for_all(F f) {
    for (Kept& k : kept_) f(*k.sequence);
  }
  int64_t size() const { return static_cast<int64_t>(kept_.size()); }
  // Blocks that sessions hold: what several of them share counts once, what the prefix index or a
  // running sequence has too counts as well.
  int64_t blocks() const { return blocks_; }
  const Counts& counts() const { return counts_; }
  static int64_t hidden_tokens(const Sequence& s);

 private:
  struct Kept {
    std::unique_ptr<Sequence> sequence;
    Clock::time_point used;
  };
  using Place = std::list<Kept>::iterator;
  Place find(const Sequence& s);
  void drop(Place place, std::vector<BlockId>& freed);
  void count(const Sequence& s, bool in);  // its blocks, when it comes in and before it leaves
  std::string why_not(const Sequence& kept, const Sequence& s) const;

  const EngineConfig& config_;
  const CacheShape& shape_;
  const KvModel& kv_;
  BlockPool& pool_;
  int64_t most_blocks_ = 0;
  int64_t blocks_ = 0;
  std::list<Kept> kept_;           // the oldest first
  std::vector<uint32_t> holders_;  // [pool] sessions that hold a block; empty until the first
  std::vector<BlockId> ids_;       // of count()
  std::vector<int32_t> ids_filled_;
  Counts counts_;
};

// Positions of the thought of the turn that ended, blank lines after it included, among the
// computed ones; empty: there is none, or it has no end.
KeepSpan thought_of(const Sequence& s);

// The tokens of a session as a later prompt has them: without what was dropped at the end of turns.
std::vector<int32_t> visible_tokens(const Sequence& s);

}  // namespace pagefold
