#include "engine/batch.h"

#include "engine/compression.h"

namespace pagefold {

Batch::Batch(int max_rows, int max_seqs, int max_logit_rows) {
  tokens_.reserve(static_cast<size_t>(max_rows));
  positions_.reserve(static_cast<size_t>(max_rows));
  seqs_.reserve(static_cast<size_t>(max_seqs));
  logit_rows_.reserve(static_cast<size_t>(max_logit_rows));
}

void Batch::build(const StepPlan& plan) {
  tokens_.clear();
  positions_.clear();
  seqs_.clear();
  logit_rows_.clear();
  for (const StepPlan::Item& item : plan.items) {
    Sequence& s = *item.sequence;
    seqs_.push_back({static_cast<int>(tokens_.size()), item.rows, s.cache.tables(),
                     begin_signals(s, item.rows)});
    for (int64_t r = s.n_computed; r < s.n_computed + item.rows; ++r) {
      if (s.wants_logits(r)) logit_rows_.push_back(static_cast<int32_t>(tokens_.size()));
      tokens_.push_back(s.tokens[static_cast<size_t>(r)]);
      positions_.push_back(r);  // token i of a sequence has position i
    }
  }
}

}  // namespace pagefold
