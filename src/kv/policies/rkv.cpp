#include <algorithm>
#include <limits>
#include <vector>

#include "kv/policies/rkv_math.h"
#include "kv/policy.h"
#include "kv/pooling.h"
#include "kv/position_order.h"

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
    const auto n = static_cast<size_t>(s.n);
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    // Dead slots, and of the prefix also those of the window, have no share.
    std::vector<float> dead(n, 0.0f), outside(n, 0.0f);
    // The prefix in the order of positions, so that the pool is right after `fill` too.
    std::vector<uint64_t> ordered;
    ordered.reserve(n);
    for (size_t i = 0; i < n; ++i) {
      const bool gone = s.flags != nullptr && (s.flags[i] & kSlotDead) != 0;
      if (gone) dead[i] = kHidden;
      if (gone || s.positions[i] >= begin)
        outside[i] = kHidden;
      else
        ordered.push_back(position_key(s.positions[i], static_cast<int64_t>(i)));
    }
    sort_by_position(ordered);
    rkv_redundancy(s.keys->similarity, dead.data(), s.n, out);
    const auto lambda = static_cast<float>(in.params.get("lambda"));
    for (size_t i = 0; i < n; ++i) out[i] *= -(1 - lambda);
    if (ordered.empty()) return;
    std::vector<float> importance(n), sorted(ordered.size()), pooled(ordered.size());
    rkv_importance(s.keys->logits, s.keys->stride, rows, outside.data(), s.n, importance.data());
    for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = importance[slot_of(ordered[i])];
    pool_scores(sorted.data(), static_cast<int64_t>(sorted.size()),
                static_cast<int>(in.params.integer("kernel")), Pool::max, pooled.data());
    for (size_t i = 0; i < sorted.size(); ++i) out[slot_of(ordered[i])] += lambda * pooled[i];
  }
};

}  // namespace

const Policy& policy_rkv() {
  static const Rkv policy;
  return policy;
}

}  // namespace pagefold
