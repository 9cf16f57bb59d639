#include <algorithm>

#include "kv/policy.h"

namespace pagefold {
namespace {

// H2O (Zhang et al. 2023, arXiv 2306.14048), the greedy form: probability summed over every query
// that saw the key, mean over the group; half the budget is recent tokens. One token goes for one
// that comes.
class H2o final : public Policy {
 public:
  std::string_view name() const override { return "h2o"; }
  std::string_view summary() const override {
    return "attention mass over all queries, and recent tokens";
  }
  PolicyDefaults defaults() const override {
    PolicyDefaults d;
    d.sinks = 0;
    d.recent_rule = RecentRule::half;
    d.interval = 1;
    d.packing = Packing::fill;
    return d;
  }
  Needs needs(const PolicyParams&) const override {
    Needs n;
    n.prompt = PromptRows::all;
    n.decode = DecodeRows::all;
    n.form = MassForm::probability;
    return n;
  }
  void scores(const ScoreInput&, const SlotSignals& s, float* out) const override {
    std::copy_n(s.mass, s.n, out);
  }
};

}  // namespace

const Policy& policy_h2o() {
  static const H2o policy;
  return policy;
}

}  // namespace pagefold
