// PyramidKV (Cai et al. 2024, arXiv 2406.02069): lower layers keep more, on a line; here with the
// exact total budget x layers for every head index.
#include <algorithm>

#include "kv/budget.h"

namespace pagefold {
namespace {

class Pyramid final : public BudgetRule {
 public:
  std::string_view name() const override { return "pyramid"; }
  std::string_view summary() const override {
    return "lower layers keep more; budget x layers in all";
  }
  std::string_view param() const override { return "beta"; }
  void counts(const BudgetInput& in, int64_t* keep) const override {
    const KvModel& m = in.model;
    const int layers = m.n_compressed_layers();
    std::vector<int64_t> part(static_cast<size_t>(layers)), low(part), high(part);
    for (int h = 0; h < m.n_kv_heads; ++h) {
      int64_t total = 0, pinned = 0;
      size_t i = 0;
      for (int l = 0; l < m.n_layers; ++l) {
        if (!m.compressed(l)) continue;
        const int t = l * m.n_kv_heads + h;
        pinned = std::max(pinned, in.pinned[t]);
        low[i] = in.least[t];
        high[i++] = in.live[t];
        total += in.pinned[t] + in.budget;
      }
      const int64_t window = std::min(in.window, in.budget);
      const int64_t most = std::max<int64_t>(0, in.computed - pinned - window);
      const auto line = pyramid_line(in.budget - window, in.params.beta, layers, most);
      i = 0;
      for (int l = 0; l < m.n_layers; ++l) {
        if (!m.compressed(l)) continue;
        part[i] = in.pinned[l * m.n_kv_heads + h] + window + line[i];
        ++i;
      }
      fit_counts(part.data(), low.data(), high.data(), layers, total);
      i = 0;
      for (int l = 0; l < m.n_layers; ++l) {
        if (m.compressed(l)) keep[l * m.n_kv_heads + h] = part[i++];
      }
    }
  }
};

}  // namespace

const BudgetRule& budget_pyramid() {
  static const Pyramid rule;
  return rule;
}

}  // namespace pagefold
