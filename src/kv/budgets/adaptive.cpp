// Ada-KV (Feng et al. 2024, arXiv 2407.11550) with exact totals: within a layer every head keeps
// its best alpha x budget slots, the rest of the layer's budget goes to the best scores of any
// head.
#include <algorithm>
#include <functional>

#include "kv/budget.h"

namespace pagefold {
namespace {

struct Candidate {
  float score;
  int head;
};

class Adaptive final : public BudgetRule {
 public:
  std::string_view name() const override { return "adaptive"; }
  std::string_view summary() const override {
    return "heads of a layer compete; budget x KV heads a layer, alpha of it a head at least";
  }
  std::string_view param() const override { return "alpha"; }
  bool uses_scores() const override { return true; }
  void counts(const BudgetInput& in, int64_t* keep) const override {
    const KvModel& m = in.model;
    std::vector<Candidate> pool;
    std::vector<float> sorted;
    const auto safe = static_cast<int64_t>(static_cast<double>(in.budget) * in.params.alpha);
    for (int l = 0; l < m.n_layers; ++l) {
      const int first = l * m.n_kv_heads;
      if (!m.compressed(l)) {
        std::fill_n(keep + first, m.n_kv_heads, 0);
        continue;
      }
      pool.clear();
      int64_t left = 0;
      for (int h = 0; h < m.n_kv_heads; ++h) {
        const int t = first + h;
        keep[t] = std::min(in.live[t], std::max(in.least[t], in.pinned[t] + safe));
        left += in.pinned[t] + in.budget - keep[t];
        sorted = in.scores[t];
        std::nth_element(sorted.begin(), sorted.begin() + keep[t], sorted.end(), std::greater<>());
        for (auto i = static_cast<size_t>(keep[t]); i < sorted.size(); ++i) {
          pool.push_back({sorted[i], h});
        }
      }
      left = std::clamp<int64_t>(left, 0, static_cast<int64_t>(pool.size()));
      // Equal scores: the lower head.
      std::nth_element(pool.begin(), pool.begin() + left, pool.end(),
                       [](const Candidate& a, const Candidate& b) {
                         return a.score != b.score ? a.score > b.score : a.head < b.head;
                       });
      for (int64_t i = 0; i < left; ++i) ++keep[first + pool[static_cast<size_t>(i)].head];
    }
  }
};

}  // namespace

const BudgetRule& budget_adaptive() {
  static const Adaptive rule;
  return rule;
}

}  // namespace pagefold
