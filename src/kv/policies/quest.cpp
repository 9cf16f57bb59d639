// Keeps everything and reads part of it: the selector does the work (selectors/quest.h).
#include <algorithm>

#include "kv/policy.h"

namespace pagefold {
namespace {

class QuestPolicy final : public Policy {
 public:
  std::string_view name() const override { return "quest"; }
  std::string_view summary() const override {
    return "evicts nothing; decode reads the budget's worth of blocks (selector quest)";
  }
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

const Policy& policy_quest() {
  static const QuestPolicy policy;
  return policy;
}

}  // namespace pagefold
