// Which sequences compute how many rows in the next step, and whose blocks pay for it.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/sequence.h"
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
//  - blocks are reserved here, all or nothing a sequence; short of blocks, the youngest running
//    sequence is paused: its blocks go back, and it is computed again from its tokens when there is
//    room (the numbers are the same whatever runs beside it, so the answer does not change);
//  - admission is optimistic: all known tokens of the newcomer must fit beside what the running
//    sequences still need for theirs, and a watermark of the pool stays free for decoding.
// A pool that holds one sequence of max_model_len therefore always makes progress: the oldest
// sequence can take everything.
class Scheduler {
 public:
  Scheduler(const EngineConfig& config, const CacheShape& shape, const KvModel& kv, BlockPool& pool,
            int max_logit_rows);

  void add(std::unique_ptr<Sequence> sequence);  // in order of arrival
  // Plans the next step and reserves its blocks. Blocks that paused sequences give back are
  // appended to `freed`. The plan is empty only when no sequence is left.
  const StepPlan& plan(std::vector<BlockId>& freed);
  // Takes out every sequence for which `wanted` is true. Their blocks are still held.
  template <class F>
  void take_if(F wanted, std::vector<std::unique_ptr<Sequence>>& out) {
    take_from(running_, wanted, out);
    take_from(waiting_, wanted, out);
  }

  template <class F>
  void for_running(F f) {
    for (const auto& s : running_) f(*s);
  }

  bool empty() const { return running_.empty() && waiting_.empty(); }
  size_t running() const { return running_.size(); }
  int paused() const;  // waiting, but admitted before
  uint64_t preemptions() const { return preemptions_; }
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

  int64_t blocks_to_finish_prompt(const Sequence& s) const;
  int64_t rows_allowed(const Sequence& s) const;
  void schedule(Sequence& s, std::vector<BlockId>& freed);
  void pause_youngest(std::vector<BlockId>& freed);
  bool fits(const Sequence& newcomer) const;
  void admit(std::vector<BlockId>& freed);

  const EngineConfig& config_;
  const CacheShape& shape_;
  const KvModel& kv_;
  BlockPool& pool_;
  const int max_logit_rows_;
  std::vector<std::unique_ptr<Sequence>> running_;  // ascending arrival
  std::deque<std::unique_ptr<Sequence>> waiting_;  // ascending arrival, paused ones first by nature
  StepPlan plan_;
  int rows_left_ = 0, logits_left_ = 0;
  bool paused_now_ = false;
  int newly_admitted_ = 0;
  uint64_t preemptions_ = 0;
};

}  // namespace pagefold
