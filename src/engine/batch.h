// A plan, flattened into the arrays that the model reads.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/scheduler.h"
#include "model/model.h"

namespace pagefold {

// Storage is kept from step to step.
class Batch {
 public:
  Batch(int max_rows, int max_seqs, int max_logit_rows);
  void build(const StepPlan& plan);
  // Valid until the next build() and while the planned sequences' caches do not change.
  StepBatch view() const { return {tokens_, positions_, seqs_, logit_rows_}; }

 private:
  std::vector<int32_t> tokens_;      // [rows]
  std::vector<int64_t> positions_;   // [rows]
  std::vector<SeqRows> seqs_;        // [items]
  std::vector<int32_t> logit_rows_;  // ascending
};

}  // namespace pagefold
