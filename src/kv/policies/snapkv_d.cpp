#include <algorithm>
#include <vector>

#include "kv/policy.h"
#include "kv/window_scores.h"

namespace pagefold {
namespace {

constexpr ParamSpec kSnapKvDecodeParams[] = {
    {"window", 32, 1, 4096, true, {}, "prompt rows observed"},
    {"kernel", 7, 1, 255, true, {}, "width of the pool, odd"},
    {"pool", 0, 0, 0, true, "max,avg", "how neighbours lend their score"}};

// SnapKV carried into decoding: the rows of every interval are a new window, and a slot keeps the
// largest mean probability that any window gave it.
class SnapKvDecode final : public Policy {
 public:
  std::string_view name() const override { return "snapkv-d"; }
  std::string_view summary() const override {
    return "snapkv with a new window every interval while decoding";
  }
  std::span<const ParamSpec> params() const override { return kSnapKvDecodeParams; }
  Needs needs(const PolicyParams& p) const override {
    return window_mass(p.integer("window"), DecodeRows::all, MassForm::probability,
                       MassKeep::interval_max);
  }
  void scores(const ScoreInput& in, const SlotSignals& s, float* out) const override {
    const float scale = s.interval_rows > 0 ? 1.0f / static_cast<float>(s.interval_rows) : 0.0f;
    std::vector<float> best(static_cast<size_t>(s.n));
    for (size_t i = 0; i < best.size(); ++i) {
      best[i] = std::max(s.mass[i], s.interval_mass[i] * scale);
    }
    const Pool pool = in.params.get("pool") == 0 ? Pool::max : Pool::avg;
    pool_before_window(s, best.data(), in.window_begin,
                       static_cast<int>(in.params.integer("kernel")), pool, out);
  }
};

}  // namespace

const Policy& policy_snapkv_d() {
  static const SnapKvDecode policy;
  return policy;
}

}  // namespace pagefold
