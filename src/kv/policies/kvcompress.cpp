#include <algorithm>

#include "kv/policy.h"

namespace pagefold {
namespace {

constexpr ParamSpec kKvCompressParams[] = {
    {"window", 32, 1, 4096, true, {}, "prompt rows observed"},
    {"kernel", 7, 1, 255, true, {}, "width of the max pool over the prompt, odd"}};

// KV-Compress (Rehg 2024, arXiv 2410.00161): squared probability, summed over the group and over
// the last rows of the prompt (max pooled along the tokens), then over every decode row.
class KvCompress final : public Policy {
 public:
  std::string_view name() const override { return "kvcompress"; }
  std::string_view summary() const override {
    return "squared attention mass, all layers and heads compete for blocks";
  }
  std::span<const ParamSpec> params() const override { return kKvCompressParams; }
  PolicyDefaults defaults() const override {
    PolicyDefaults d;
    d.sinks = 0;
    d.recent = 64;
    d.alloc = "global";
    return d;
  }
  Needs needs(const PolicyParams& p) const override {
    Needs n = window_mass(p.integer("window"), DecodeRows::all, MassForm::squared, MassKeep::sum);
    n.prompt_pool = static_cast<int>(p.integer("kernel"));
    return n;
  }
  void scores(const ScoreInput&, const SlotSignals& s, float* out) const override {
    std::copy_n(s.mass, s.n, out);
  }
};

}  // namespace

const Policy& policy_kvcompress() {
  static const KvCompress policy;
  return policy;
}

}  // namespace pagefold
