#include <algorithm>
#include <vector>

#include "kv/policies/triattention_math.h"
#include "kv/policy.h"

namespace pagefold {
namespace {

constexpr ParamSpec kTriattentionParams[] = {
    {"scope", 0, 0, 0, true, "per_head,union,per_layer_per_head", "what shares one keep-set"},
    {"agg", 0, 0, 0, true, "mean,max", "over the offsets of future queries"},
    {"max_offset",
     0,
     0,
     1 << 20,
     true,
     {},
     "offsets 1, 2, 4 ... up to this; 0: min(4096, context)"}};

constexpr int kSelfPromptRows = 128;

// TriAttention (arXiv 2604.04921): keys are scored by what an average query at a few future
// positions would give them. z-scores over a head's candidates, maximum over the group, then mean
// over layers (per_head), maximum over everything (union), or each table for itself.
class Triattention final : public Policy {
 public:
  std::string_view name() const override { return "triattention"; }
  std::string_view summary() const override {
    return "keys against the average query at future positions; observes no attention";
  }
  std::span<const ParamSpec> params() const override { return kTriattentionParams; }
  PolicyDefaults defaults() const override {
    PolicyDefaults d;
    d.recent = 128;
    d.protect_prompt = true;
    return d;
  }
  Needs needs(const PolicyParams& p) const override {
    Needs n;
    n.key_score = KeyScore::coefficients;
    if (p.has("self")) n.stats_prompt_rows = kSelfPromptRows;
    return n;
  }
  Scope scope(const PolicyParams& p) const override {
    if (p.get("scope") == 1) return Scope::sequence;
    return p.get("scope") == 2 ? Scope::layer_head : Scope::head;
  }
  Join join(const PolicyParams& p) const override {
    return p.get("scope") == 1 ? Join::max : Join::mean;
  }
  void scores(const ScoreInput& in, const SlotSignals& s, float* out) const override {
    std::vector<float> weights(static_cast<size_t>(s.n));
    z_weights(s.flags, s.n, weights.data());
    for (int g = 0; g < in.group; ++g) {
      const float* logits = s.keys->logits + g * s.keys->stride;
      const ZScale z = z_scale(logits, weights.data(), s.n);
      for (int64_t i = 0; i < s.n; ++i) {
        const float score = (logits[i] - z.mean) * z.inverse;
        out[i] = g > 0 && out[i] > score ? out[i] : score;
      }
    }
  }
  void key_query(const KeyQueryInput& in, KeyCoefficientBuffer& out) const override {
    int64_t most = in.params.integer("max_offset");
    if (most == 0) {
      most = in.model.context_length > 0 ? std::min<int64_t>(4096, in.model.context_length) : 4096;
    }
    TriattentionFold fold;
    fold.max = in.params.get("agg") == 1;
    fold.offsets = triattention_offsets(most);
    fold.next_pos = in.next_pos;
    fold.attention_scaling = in.model.attention_scaling;
    triattention_fold(in.stats, in.model, fold, out);
  }
};

}  // namespace

const Policy& policy_triattention() {
  static const Triattention policy;
  return policy;
}

}  // namespace pagefold
