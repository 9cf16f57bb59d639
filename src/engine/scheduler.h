// Which sequences compute how many rows in the next step, and whose blocks pay for it.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/pausing.h"
#include "engine/prefix_sharing.h"
#include "engine/sequence.h"
#include "engine/sessions.h"
#include "kv/block_pool.h"

namespace pagefold {

struct StepPlan {
  struct Item {
    Sequence* sequence = nullptr;
    int rows = 0;
  };
  std::vector<Item> items;  // in order of arrival
  int rows = 0, logit_rows = 0;
};

// Owns every sequence between submission and its end. Rules:
//  - decode rows first, then prompt chunks, both in order of arrival; then new sequences, the
//  oldest
//    first and none past it, so nothing starves;
//  - blocks are reserved here, all or nothing a sequence. Short of blocks, what only the prefix
//    index holds is taken back first, then what sessions hold; then budgets of
//    sequences that opted in are lowered (kv.elastic); then the youngest running sequence
//    is paused (Pausing), and goes on when there is room, the oldest first. Numbers are the same
//    whatever runs beside them, so no answer changes;
//  - admission is optimistic: all known tokens of the newcomer must fit beside what the running
//    sequences still need for theirs, and a watermark of the pool stays free for decoding. Or
//    guaranteed: the most that all of them may ever hold must fit, and nobody is paused.
// A pool that holds one sequence of max_model_len therefore always makes progress: the oldest
// sequence can take everything.
class Scheduler {
 public:
  Scheduler(const EngineConfig& config, const CacheShape& shape, const KvModel& kv, BlockPool& pool,
            PrefixSharing& prefix, SessionStore& sessions, Pausing& pausing, int max_logit_rows);

  void add(std::unique_ptr<Sequence> sequence);  // in order of arrival
  // Plans the next step and reserves its blocks. Blocks that paused sequences give back are
  // appended to `freed`. The plan is empty only when no sequence is left, or when one must be
  // filled in or compacted first.
  const StepPlan& plan(std::vector<BlockId>& freed);
  // A sequence has to be compacted before it may go on.
  bool waits_for_compaction() const;
  // Takes out every sequence for which `wanted` is true. Their blocks are still held.
  template <class F>
  void take_if(F wanted, std::vector<std::unique_ptr<Sequence>>& out) {
    take_from(running_, wanted, out);
    take_from(waiting_, wanted, out);
  }

  // Takes the youngest running sequence off its blocks; it goes on when there is room.
  void pause_youngest(std::vector<BlockId>& freed);

  template <class F>
  void for_running(F f) {
    for (const auto& s : running_) f(*s);
  }

  template <class F>
  void for_waiting(F f) {
    for (const auto& s : waiting_) f(*s);
  }

  bool empty() const { return running_.empty() && waiting_.empty(); }
  size_t running() const { return running_.size(); }
  Sequence& running_at(size_t i) { return *running_[i]; }  // in order of arrival
  int paused() const;                                      // waiting, but admitted before
  uint64_t preemptions() const { return preemptions_; }
  uint64_t squeezes() const { return squeezes_; }  // budgets lowered (kv.elastic)
  // Sequences admitted for the first time in the last plan().
  int newly_admitted() const { return newly_admitted_; }

 private:
  template <class C, class F>
  static void take_from(C& from, F wanted, std::vector<std::unique_ptr<Sequence>>& out) {
    size_t kept = 0;
    for (size_t i = 0; i < from.size(); ++i) {
      if (wanted(*from[i])) {
        out.push_back(std::move(from[i]));
      } else {
        if (kept != i) from[kept] = std::move(from[i]);
        ++kept;
      }
    }
    from.resize(kept);
  }

  int64_t blocks_to_come(const Sequence& s) const;
  int64_t more_blocks(const Sequence& s, int64_t held) const;
  int64_t rows_allowed(const Sequence& s) const;
  void schedule(Sequence& s, std::vector<BlockId>& freed);
  bool reserve(Sequence& s, int64_t rows, std::vector<BlockId>& freed);
  // session: the one that it goes on from, or null.
  bool fits(const Sequence& newcomer, const PrefixIndex::Hit& hit, const Sequence* session) const;
  void admit(std::vector<BlockId>& freed);
  bool squeeze();
  void go_on(std::unique_ptr<Sequence> s, std::vector<BlockId>& freed);
  void drop_unwritten();
  void ensure_compression(Sequence& s) const;

  const EngineConfig& config_;
  const CacheShape& shape_;
  const KvModel& kv_;
  BlockPool& pool_;
  PrefixSharing& prefix_;
  SessionStore& sessions_;
  Pausing& pausing_;
  const int max_logit_rows_;
  std::vector<std::unique_ptr<Sequence>> running_;  // ascending arrival
  std::deque<std::unique_ptr<Sequence>> waiting_;  // ascending arrival, paused ones first by nature
  StepPlan plan_;
  int rows_left_ = 0, logits_left_ = 0;
  bool paused_now_ = false;  // or a budget was lowered: nobody is admitted in this step
  int newly_admitted_ = 0;
  uint64_t preemptions_ = 0, squeezes_ = 0;
};

}  // namespace pagefold
