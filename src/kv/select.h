// From scores to keep-sets: protects, joins scores across a scope, and picks the best of each
// table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.h"
#include "kv/cache.h"
#include "kv/plan.h"
#include "kv/schedule.h"
#include "kv/sequence_signals.h"

namespace pagefold {

// Picks `keep` of n slots into `out`, ascending: first all with flags protected or pinned, then the
// highest scores; equal scores: the lower slot. Dead slots never. scratch is reused.
void pick_top(const float* scores, const uint8_t* flags, int64_t n, int64_t keep,
              std::vector<int32_t>& scratch, std::vector<int32_t>& out);
// Whole blocks: drops blocks without protected slots, lowest sum of scores a slot first, while at
// least `keep` slots stay. out: the slots that stay, ascending.
void pick_blocks(const float* scores, const uint8_t* flags, int64_t n, int64_t keep, int block_size,
                 std::vector<int32_t>& out);

class SlotSelector {
 public:
  // for_each: as Compactor has it.
  explicit SlotSelector(const KvModel& model, ForEachUnit for_each = {});
  // Fills kept() for every compressed table.
  void select(const KvPlan& plan, const ScheduleState& state, const SequenceCache& cache,
              const SequenceSignals& signals, const ScoredKeys* scored);
  const std::vector<std::vector<int32_t>>& kept() const { return kept_; }
  const std::vector<std::vector<float>>& scores() const { return scores_; }  // joined
  const std::vector<std::vector<uint8_t>>& flags() const { return flags_; }

 private:
  void flag_slots(const KvPlan& plan, const ScheduleState& state, const SequenceCache& cache,
                  const SequenceSignals& signals);
  void score_tables(const KvPlan& plan, const ScheduleState& state, const SequenceSignals& signals,
                    const ScoredKeys* scored);
  void join_scope(const KvPlan& plan, const SequenceSignals& signals, std::span<const int> tables);
  void share_out(const KvPlan& plan, const ScheduleState& state);
  void check_kept(const KvPlan& plan) const;

  const KvModel& model_;
  const ForEachUnit for_each_;
  std::vector<std::vector<float>> scores_;
  std::vector<std::vector<uint8_t>> flags_;
  std::vector<std::vector<int32_t>> kept_;
  std::vector<int64_t> live_, pinned_, least_, keep_;
  std::vector<int> same_as_;  // earlier table of the scope with the same positions, or itself
  std::vector<int32_t> scratch_;
  std::vector<float> joined_;
  std::vector<std::vector<float>> masked_;
};

}  // namespace pagefold
