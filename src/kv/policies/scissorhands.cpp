#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "kv/policy.h"

namespace pagefold {
namespace {

constexpr ParamSpec kScissorhandsParams[] = {
    {"window", 400, 1, 4096, true, {}, "rows of the history"},
    {"drop", 0, 0, 1 << 30, true, {}, "slots dropped at once; 0: half the budget"}};

// Scissorhands (Liu et al. 2023, arXiv 2305.17118), the counter form: in how many of the last rows
// a slot's probability (mean of the group) was below uniform. More often: dropped first; then the
// smaller probability over those rows; then the lower slot. The score is the slot's rank in that
// order. The probability is summed in segments of rows, so it may miss the oldest eighth of them.
class Scissorhands final : public Policy {
 public:
  std::string_view name() const override { return "scissorhands"; }
  std::string_view summary() const override {
    return "drops half the budget at once: what recent queries ignored most often";
  }
  std::span<const ParamSpec> params() const override { return kScissorhandsParams; }
  PolicyDefaults defaults() const override {
    PolicyDefaults d;
    d.sinks = 0;
    d.recent = 10;
    d.interval = 1;
    d.drops_half = true;
    return d;
  }
  Needs needs(const PolicyParams& p) const override {
    return window_mass(p.integer("window"), DecodeRows::all, MassForm::probability,
                       MassKeep::history);
  }
  void scores(const ScoreInput&, const SlotSignals& s, float* out) const override {
    const HistoryArrays& h = *s.history;
    std::vector<int> low(static_cast<size_t>(s.n), 0);
    std::vector<float> mass(low.size(), 0.0f);
    for (int w = 0; w < h.words; ++w) {
      const uint64_t* bits = h.bits + w * h.stride;
      for (size_t i = 0; i < low.size(); ++i) low[i] += std::popcount(bits[i]);
    }
    for (int g = 0; g < h.segments; ++g) {
      const float* sums = h.mass + g * h.stride;
      for (size_t i = 0; i < low.size(); ++i) mass[i] += sums[i];
    }
    std::vector<int32_t> order(low.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
      return low[i] != low[j] ? low[i] > low[j] : mass[i] < mass[j];
    });
    for (size_t rank = 0; rank < order.size(); ++rank) {
      out[order[rank]] = static_cast<float>(rank);
    }
  }
};

}  // namespace

const Policy& policy_scissorhands() {
  static const Scissorhands policy;
  return policy;
}

}  // namespace pagefold
