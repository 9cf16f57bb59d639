// When a sequence compacts, which rows it has observed, and how much memory it will need: pure
// functions of the plan and a few counts, so that admission, scheduler and calculator agree.
#pragma once

#include <cstdint>

#include "kv/cache.h"
#include "kv/plan.h"

namespace pagefold {

inline int64_t blocks_of(int64_t slots, int64_t block_size) {
  return (slots + block_size - 1) / block_size;
}

struct ScheduleState {
  int64_t n_prompt = 0;
  int64_t window_end = 0;  // observed prompt rows end here (n_prompt, or before the suffix)
  int64_t n_computed = 0;
  int64_t last_event = 0;  // n_computed at the last compaction
};

// Slots of all compressed tables right after a compaction at `computed` tokens.
int64_t budget_total(const KvPlan& plan, const KvModel& model, int64_t computed, int64_t n_prompt);

// Slots that a table of `live` slots keeps, of the `keep` that the budget rule gives it: policies
// that drop many at once let go of more. least: pinned and protected ones.
int64_t slots_after(const KvPlan& plan, int64_t live, int64_t least, int64_t keep, int64_t budget);

// Whether to compact now. live: live slots of all compressed tables.
bool compaction_due(const KvPlan& plan, const KvModel& model, const ScheduleState& s, int64_t live);

// Most rows the next step may compute so that it stops where the plan may compact.
int64_t rows_to_stop(const KvPlan& plan, const ScheduleState& s);

// Prompt rows that must be computed rather than taken from a prefix cache: a hit may cover at most
// the first `n` tokens. all rows needed: 0.
int64_t most_cached_prompt(const KvPlan& plan, const ScheduleState& s);

struct Footprint {
  int64_t slots = 0;   // all tables
  int64_t blocks = 0;  // all tables
};
// Right after the last compaction of a request that generates max_tokens (upper bound for uneven
// budgets: rounding to blocks is counted for every table).
Footprint steady_footprint(const KvPlan& plan, const KvModel& model, int64_t n_prompt,
                           int64_t max_tokens);
// The most it ever holds. step_rows: most rows a step computes of one sequence. shared: some of the
// prompt's blocks may be shared with others, so that a compaction copies before it frees.
Footprint peak_footprint(const KvPlan& plan, const KvModel& model, int64_t n_prompt,
                         int64_t max_tokens, int64_t step_rows, bool shared = false);

}  // namespace pagefold
