#include <algorithm>

#include "kv/policy.h"

namespace pagefold {
namespace {

// The upper bound of attention-based policies: the caller (eval) puts the mass that *future*
// queries will give into the slots' mass. Nothing is observed while generating.
class Oracle final : public Policy {
 public:
  std::string_view name() const override { return "oracle"; }
  std::string_view summary() const override {
    return "attention mass of future queries, an upper bound (eval only)";
  }
  PolicyDefaults defaults() const override {
    PolicyDefaults d;
    d.offline = true;
    return d;
  }
  Needs needs(const PolicyParams&) const override {
    Needs n;
    n.form = MassForm::probability;
    return n;
  }
  void scores(const ScoreInput&, const SlotSignals& s, float* out) const override {
    std::copy_n(s.mass, s.n, out);
  }
};

}  // namespace

const Policy& policy_oracle() {
  static const Oracle policy;
  return policy;
}

}  // namespace pagefold
