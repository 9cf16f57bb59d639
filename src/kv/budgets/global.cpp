// KV-Compress (Rehg 2024, arXiv 2410.00161): all heads of all layers compete for whole blocks. The
// x-th block a head frees costs the score of the best slot that must go for it.
#include <algorithm>
#include <cmath>

#include "kv/budget.h"

namespace pagefold {
namespace {

struct BlockCost {
  float cost;
  int table;
};

class Global final : public BudgetRule {
 public:
  std::string_view name() const override { return "global"; }
  std::string_view summary() const override {
    return "all layers and heads compete for whole blocks; budget x layers x KV heads in all";
  }
  bool uses_scores() const override { return true; }
  bool whole_blocks() const override { return true; }
  void counts(const BudgetInput& in, int64_t* keep) const override {
    const KvModel& m = in.model;
    const int64_t bs = m.block_size;
    int64_t held = 0, allowed = 0;
    std::vector<BlockCost> costs;
    std::vector<float> sorted;
    for (int t = 0; t < m.n_tables(); ++t) {
      keep[t] = in.live[t];
      if (!m.compressed(t / m.n_kv_heads)) continue;
      held += (in.live[t] + bs - 1) / bs;
      allowed += in.budget + in.pinned[t];
      sorted = in.scores[t];
      std::sort(sorted.begin(), sorted.end());
      for (int64_t evicted = last_block(in.live[t], bs); evicted <= in.live[t]; evicted += bs) {
        if (evicted == 0) break;
        const float cost = sorted[static_cast<size_t>(evicted - 1)];
        if (std::isinf(cost)) break;  // a protected slot would go
        costs.push_back({cost, t});
      }
    }
    allowed = (allowed + bs - 1) / bs;
    const int64_t n = std::clamp<int64_t>(held - allowed, 0, static_cast<int64_t>(costs.size()));
    // Costs rise within a table, so the cheapest n are a prefix of each. Equal: the lower table.
    std::stable_sort(costs.begin(), costs.end(),
                     [](const BlockCost& a, const BlockCost& b) { return a.cost < b.cost; });
    for (int64_t i = 0; i < n; ++i) {
      int64_t& k = keep[costs[static_cast<size_t>(i)].table];
      k -= last_block(k, bs);
    }
  }

 private:
  // Slots of the last block, 1..block size.
  static int64_t last_block(int64_t slots, int64_t bs) {
    return slots == 0 ? 0 : (slots - 1) % bs + 1;
  }
};

}  // namespace

const BudgetRule& budget_global() {
  static const Global rule;
  return rule;
}

}  // namespace pagefold
