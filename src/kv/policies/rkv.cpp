#include <algorithm>
#include <vector>

#include "kv/policies/rkv_math.h"
#include "kv/policy.h"
#include "kv/pooling.h"

namespace pagefold {
namespace {

constexpr ParamSpec kRkvParams[] = {
    {"window", 8, 1, 512, true, {}, "newest queries observed, and newest slots kept"},
    {"kernel", 7, 1, 255, true, {}, "width of the max pool, odd"},
    {"lambda", 0.1, 0, 1, false, {}, "weight of importance against redundancy"},
    {"threshold", 0.5, -1, 1, false, {}, "similarity that counts as a repetition"}};

// R-KV (Cai et al. 2025, arXiv 2505.24133): lambda x importance - (1 - lambda) x redundancy.
// Importance: the newest queries' attention over the older keys (maximum over the group before the
// softmax), pooled. Redundancy: how alike a key is to the others. Quadratic in the slots.
class Rkv final : public Policy {
 public:
  std::string_view name() const override { return "rkv"; }
  std::string_view summary() const override {
    return "attention of the newest queries against repetition among keys (R-KV)";
  }
  std::span<const ParamSpec> params() const override { return kRkvParams; }
  PolicyCost cost() const override { return PolicyCost::quadratic; }
  PolicyDefaults defaults() const override {
    PolicyDefaults d;
    d.sinks = 0;
    d.recent_rule = RecentRule::window;
    return d;
  }
  Needs needs(const PolicyParams& p) const override {
    Needs n;
    n.window = static_cast<int>(p.integer("window"));
    n.query_ring = n.window;
    n.key_score = KeyScore::redundancy;
    return n;
  }
  void scores(const ScoreInput& in, const SlotSignals& s, float* out) const override {
    const int64_t window = in.params.integer("window");
    const auto rows = static_cast<int>(std::min(window, in.next_pos));
    const int64_t begin = in.next_pos - window;
    // The prefix in the order of positions, so that the pool is right after `fill` too.
    // A key of the sort is a position before its slot: slots alone would be looked up each time.
    std::vector<int32_t> live;
    std::vector<uint64_t> ordered;
    live.reserve(static_cast<size_t>(s.n)), ordered.reserve(static_cast<size_t>(s.n));
    for (int64_t i = 0; i < s.n; ++i) {
      if (s.flags != nullptr && (s.flags[i] & kSlotDead) != 0) continue;
      live.push_back(static_cast<int32_t>(i));
      if (s.positions[i] < begin)
        ordered.push_back(static_cast<uint64_t>(s.positions[i]) << 32 | static_cast<uint64_t>(i));
    }
    std::sort(ordered.begin(), ordered.end());
    std::vector<int32_t> prefix(ordered.size());
    for (size_t i = 0; i < prefix.size(); ++i) prefix[i] = static_cast<int32_t>(ordered[i]);
    const auto n = static_cast<int64_t>(prefix.size());
    std::vector<float> logits(prefix.size() * static_cast<size_t>(rows));
    for (int r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        logits[static_cast<size_t>(r * n + i)] =
            s.keys->logits[r * s.keys->stride + prefix[static_cast<size_t>(i)]];
      }
    }
    std::vector<float> importance(prefix.size()), pooled(prefix.size());
    rkv_importance(logits.data(), n, rows, n, importance.data());
    pool_scores(importance.data(), n, static_cast<int>(in.params.integer("kernel")), Pool::max,
                pooled.data());
    std::vector<float> similarity(live.size()), redundancy(live.size());
    for (size_t i = 0; i < live.size(); ++i) similarity[i] = s.keys->similarity[live[i]];
    rkv_redundancy(similarity.data(), static_cast<int64_t>(live.size()), redundancy.data());
    const auto lambda = static_cast<float>(in.params.get("lambda"));
    std::fill_n(out, s.n, 0.0f);
    for (size_t i = 0; i < live.size(); ++i) out[live[i]] = -(1 - lambda) * redundancy[i];
    for (size_t i = 0; i < prefix.size(); ++i) out[prefix[i]] += lambda * pooled[i];
  }
};

}  // namespace

const Policy& policy_rkv() {
  static const Rkv policy;
  return policy;
}

}  // namespace pagefold
