#include "kv/policy.h"

namespace pagefold {
namespace {

constexpr ParamSpec kStreamingParams[] = {
    {"reindex", 0, 0, 0, true, "off,on", "sinks are seen right before the window"}};

// StreamingLLM (Xiao et al. 2023, arXiv 2309.17453): the first tokens and the last ones.
class Streaming final : public Policy {
 public:
  std::string_view name() const override { return "streaming"; }
  std::string_view summary() const override { return "first tokens and the newest (StreamingLLM)"; }
  std::span<const ParamSpec> params() const override { return kStreamingParams; }
  PolicyDefaults defaults() const override {
    PolicyDefaults d;
    d.recent_rule = RecentRule::rest;
    return d;
  }
  Scope scope(const PolicyParams&) const override { return Scope::sequence; }
  bool position_only() const override { return true; }
  void scores(const ScoreInput&, const SlotSignals& s, float* out) const override {
    for (int64_t i = 0; i < s.n; ++i) out[i] = static_cast<float>(s.positions[i]);
  }
};

}  // namespace

const Policy& policy_streaming() {
  static const Streaming policy;
  return policy;
}

}  // namespace pagefold
