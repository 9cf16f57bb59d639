#include <algorithm>

#include "kv/policy.h"

namespace pagefold {
namespace {

// TOVA (Oren et al. 2024, arXiv 2401.06104): the newest query's probabilities, mean over all heads
// of a layer; one set a layer; nothing is protected, not even the newest token.
class Tova final : public Policy {
 public:
  std::string_view name() const override { return "tova"; }
  std::string_view summary() const override {
    return "attention of the newest query, one set a layer";
  }
  PolicyDefaults defaults() const override {
    PolicyDefaults d;
    d.sinks = d.recent = 0;
    d.interval = 1;
    d.packing = Packing::fill;
    return d;
  }
  Needs needs(const PolicyParams&) const override {
    return window_mass(1, DecodeRows::last, MassForm::probability, MassKeep::window);
  }
  Scope scope(const PolicyParams&) const override { return Scope::layer; }
  void scores(const ScoreInput&, const SlotSignals& s, float* out) const override {
    std::copy_n(s.mass, s.n, out);
  }
};

}  // namespace

const Policy& policy_tova() {
  static const Tova policy;
  return policy;
}

}  // namespace pagefold
