#include "base/random.h"
#include "kv/policy.h"

namespace pagefold {
namespace {

constexpr ParamSpec kRandomParams[] = {
    {"seed", 0, 0, 9007199254740992.0, true, {}, "stream of random numbers"}};

// A baseline: what a policy must beat. The score of a token depends on (seed, layer, head,
// position) alone, so it does not change from event to event.
class Random final : public Policy {
 public:
  std::string_view name() const override { return "random"; }
  std::string_view summary() const override { return "seeded random choice, a baseline"; }
  std::span<const ParamSpec> params() const override { return kRandomParams; }
  void scores(const ScoreInput& in, const SlotSignals& s, float* out) const override {
    const auto seed = static_cast<uint64_t>(in.params.get("seed"));
    const uint64_t table = static_cast<uint64_t>(in.layer) << 32 | static_cast<uint64_t>(in.head);
    for (int64_t i = 0; i < s.n; ++i) {
      const auto w = philox4x32(seed, static_cast<uint64_t>(s.positions[i]), table);
      out[i] = static_cast<float>(w[0] >> 8);
    }
  }
};

}  // namespace

const Policy& policy_random() {
  static const Random policy;
  return policy;
}

}  // namespace pagefold
