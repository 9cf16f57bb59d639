#include <algorithm>

#include "kv/policy.h"

namespace pagefold {
namespace {

class Full final : public Policy {
 public:
  std::string_view name() const override { return "full"; }
  std::string_view summary() const override { return "keeps everything (the default)"; }
  PolicyDefaults defaults() const override {
    PolicyDefaults d;
    d.evicts = false;
    return d;
  }
  void scores(const ScoreInput&, const SlotSignals& s, float* out) const override {
    std::fill_n(out, s.n, 0.0f);
  }
};

}  // namespace

const Policy& policy_full() {
  static const Full policy;
  return policy;
}

}  // namespace pagefold
