// Compression of one sequence, in the order the engine calls it:
//
//   SequenceCompression c(model, plan, n_prompt, window_end, expected_slots)      at admission
//   each step:  rows <= c.rows_to_stop()
//               cache.reserve(pool, rows)
//               seq_rows.observe = c.begin_step(cache, rows)      null: nothing to record
//               forward
//               cache.commit(pool, rows, freed);  c.end_step(rows)
//   compaction: if (c.due(cache)):
//                 const KeyScoreQuery& q = compactor.query(c, cache)
//                 if (q.kind != none) backend scores into compactor.scored()
//                 compactor.plan(c, cache, pool, plan)      false: short of blocks, none changed
//                 backend moves slots (plan)
//                 compactor.apply(c, cache, pool, plan, freed)
//                 backend.blocks_freed(freed)
//
// The policy `full` has no SequenceCompression at all.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/threads.h"
#include "kv/block_pool.h"
#include "kv/cache.h"
#include "kv/move_layout.h"
#include "kv/moves.h"
#include "kv/plan.h"
#include "kv/schedule.h"
#include "kv/select.h"
#include "kv/sequence_signals.h"

namespace pagefold {

// Counters of usage.kv; only grow.
struct CompressionCounts {
  int64_t compactions = 0;
  int64_t evicted_slots = 0;
  int64_t moved_slots = 0;
  int64_t copied_blocks = 0;
  int64_t freed_blocks = 0;  // given up by this sequence, whoever else still holds them
};

class SequenceCompression {
 public:
  // Keeps references. window_end: end of the prompt rows that `last w` means (n_prompt, or where
  // the template's suffix after the last user message begins).
  SequenceCompression(const KvModel& model, std::shared_ptr<const KvPlan> plan, int64_t n_prompt,
                      int64_t window_end, int64_t expected_slots);

  int64_t rows_to_stop() const { return pagefold::rows_to_stop(*plan_, state_); }
  // After a prefix cache gave the first `tokens` tokens: they count as computed, unobserved.
  void adopt(const SequenceCache& cache, int64_t tokens);
  // The sequence goes on with a longer prompt, most of which it has computed: what it kept and
  // remembers stays, under a plan with the same policy. Counts begin anew.
  void next_turn(std::shared_ptr<const KvPlan> plan, int64_t n_prompt, int64_t window_end);
  // From now on under this plan, which differs in its budget alone.
  void lower(std::shared_ptr<const KvPlan> plan) { plan_ = std::move(plan); }
  const Observation* begin_step(const SequenceCache& cache, int64_t rows);
  void end_step(int64_t rows);
  bool due(const SequenceCache& cache) const;

  const KvPlan& plan() const { return *plan_; }
  const KvModel& model() const { return model_; }
  const ScheduleState& state() const { return state_; }
  SequenceSignals& signals() { return signals_; }
  const SequenceSignals& signals() const { return signals_; }
  const CompressionCounts& counts() const { return counts_; }

  // For a pause: all of it, bit for bit. The cache is restored apart.
  std::string save() const;
  Status restore(std::string_view bytes);

 private:
  friend class Compactor;
  void set_prompt(int64_t n_prompt, int64_t window_end);
  const KvModel& model_;
  std::shared_ptr<const KvPlan> plan_;
  ScheduleState state_;
  SequenceSignals signals_;
  CompressionCounts counts_;
};

// One for the engine; buffers are reused.
class Compactor {
 public:
  // for_each: tables are scored by it; empty: one after the other.
  explicit Compactor(const KvModel& model, ForEachUnit for_each = {});

  // What to score before plan(), and where: scored()[table]. kind none: nothing.
  const KeyScoreQuery& query(const SequenceCompression& c, const SequenceCache& cache);
  ScoredKeys* scored() { return scored_.data(); }  // [n_tables], sized by query()

  // Scores, counts, selects, and lays out the moves. Takes the fresh blocks of copied ones from the
  // pool: false when they are not there; nothing has changed then.
  [[nodiscard]] bool plan(SequenceCompression& c, SequenceCache& cache, BlockPool& pool,
                          MovePlan& out);
  // The same for dropping the tokens at positions [begin, end) of a cache, whatever a policy thinks
  // of them. c null: slots are in order, and `dropped` tokens before them have gone this way. Not
  // under packing `off`.
  [[nodiscard]] bool plan_without(const SequenceCompression* c, SequenceCache& cache,
                                  BlockPool& pool, KeepSpan span, int64_t dropped, MovePlan& out);
  // After the bytes moved: tables shrink, tails are freed, signals move along.
  void apply(SequenceCompression& c, SequenceCache& cache, BlockPool& pool, const MovePlan& plan,
             std::vector<BlockId>& freed);
  // The keep-sets of the last plan(), ascending slots: [n_tables]; empty for layers with windows.
  const std::vector<std::vector<int32_t>>& kept() const { return selector_.kept(); }

 private:
  const KvModel& model_;
  SlotSelector selector_;
  KeyScoreQuery query_;
  KeyCoefficientBuffer coefficients_;
  std::vector<ScoredKeys> scored_;
  std::vector<float> score_store_;
  std::vector<std::vector<int32_t>> without_;
};

}  // namespace pagefold
