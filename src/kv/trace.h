// The life of one sequence in numbers: what its tables hold from the first token to the last. Same
// decisions as the engine takes (schedule.h, budget.h), without tokens, scores or blocks.
#pragma once

#include "kv/schedule.h"

namespace pagefold {

struct SequenceTrace {
  Footprint end;     // all tokens computed
  Footprint steady;  // right after the last compaction; without any: end
  Footprint peak;    // the most at any time, the blocks of the running step included
  int64_t compactions = 0;
  // The figures follow from counts alone. False: upper bounds, as the scores decide, or as the
  // steps were not enough.
  bool exact = true;
};

// What may still be followed step by step: sequences that share one take no longer together. A step
// counts once, or once for every eight layers where each layer has a count of its own.
struct TraceSteps {
  int64_t left = int64_t{1} << 20;
};

// A sequence of n_prompt prompt tokens (0 is allowed) and tokens - n_prompt more, that is alone in
// an engine whose steps take at most step_rows rows. Compressed layers do not depend on step_rows.
// steps: absent, this sequence has its own.
SequenceTrace trace_sequence(const KvPlan& plan, const KvModel& model, int64_t n_prompt,
                             int64_t tokens, int64_t step_rows, TraceSteps* steps = nullptr);

}  // namespace pagefold
