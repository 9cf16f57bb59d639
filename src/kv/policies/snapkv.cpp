#include "kv/policy.h"
#include "kv/window_scores.h"

namespace pagefold {
namespace {

constexpr ParamSpec kSnapKvParams[] = {
    {"window", 32, 1, 4096, true, {}, "prompt rows observed, and newest slots kept"},
    {"kernel", 7, 1, 255, true, {}, "width of the pool, odd"},
    {"pool", 0, 0, 0, true, "max,avg", "how neighbours lend their score"}};

// SnapKV (Li et al. 2024, arXiv 2404.14469), per KV head: mean over the group, sum over the last
// rows of the prompt, then pooled along the tokens. Once, at the prompt's end.
class SnapKv final : public Policy {
 public:
  std::string_view name() const override { return "snapkv"; }
  std::string_view summary() const override {
    return "what the end of the prompt attends to; evicts prompt tokens only, once";
  }
  std::span<const ParamSpec> params() const override { return kSnapKvParams; }
  PolicyDefaults defaults() const override {
    PolicyDefaults d;
    d.sinks = 0;
    d.recent_rule = RecentRule::window;
    d.once = true;
    return d;
  }
  Needs needs(const PolicyParams& p) const override {
    return window_mass(p.integer("window"), DecodeRows::none, MassForm::probability,
                       MassKeep::window);
  }
  void scores(const ScoreInput& in, const SlotSignals& s, float* out) const override {
    const Pool pool = in.params.get("pool") == 0 ? Pool::max : Pool::avg;
    pool_before_window(s, s.mass, in.window_begin, static_cast<int>(in.params.integer("kernel")),
                       pool, out);
  }
};

}  // namespace

const Policy& policy_snapkv() {
  static const SnapKv policy;
  return policy;
}

}  // namespace pagefold
