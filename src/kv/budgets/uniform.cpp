#include <algorithm>

#include "kv/budget.h"

namespace pagefold {
namespace {

class Uniform final : public BudgetRule {
 public:
  std::string_view name() const override { return "uniform"; }
  std::string_view summary() const override { return "the same count for every layer and head"; }
  bool even() const override { return true; }
  void counts(const BudgetInput& in, int64_t* keep) const override {
    for (int t = 0; t < in.model.n_tables(); ++t) {
      keep[t] = std::max(in.least[t], std::min(in.live[t], in.pinned[t] + in.budget));
    }
  }
};

}  // namespace

const BudgetRule& budget_uniform() {
  static const Uniform rule;
  return rule;
}

}  // namespace pagefold
