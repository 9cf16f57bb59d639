// KV-Compress (Rehg 2024, arXiv 2410.00161): all heads of all layers compete for whole blocks. The
// x-th block a head frees costs the score of the best slot that must go for it.
#include <algorithm>
#include <cmath>
#include <queue>
#include <vector>

#include "kv/budget.h"

namespace pagefold {
namespace {

// Scores of a table in ascending order, sorted only as far as they are asked for.
class Ascending {
 public:
  void reset(const std::vector<float>& scores) {
    scores_ = scores;
    sorted_ = 0;
  }
  float at(int64_t i) {
    while (i >= sorted_) extend();
    return scores_[static_cast<size_t>(i)];
  }

 private:
  int64_t size() const { return static_cast<int64_t>(scores_.size()); }
  // Sorts twice as far. A sample says below which score about as many lie, so that only those are
  // sorted out; where it misleads, all are looked at.
  void extend() {
    constexpr int64_t kSample = 64, kMargin = 4;
    const int64_t want = std::max<int64_t>(64, sorted_), rest = size() - sorted_;
    float* const from = scores_.data() + sorted_;
    if (rest >= 4 * want && rest >= 8 * kSample) {
      float sample[kSample];
      for (int64_t i = 0; i < kSample; ++i) sample[i] = from[i * rest / kSample];
      std::sort(sample, sample + kSample);
      const float high = sample[want * kSample / rest + kMargin];
      above_.resize(static_cast<size_t>(rest));
      int64_t low = 0, above = 0;
      for (int64_t i = 0; i < rest; ++i) {
        const float x = from[i];
        from[low] = x;
        above_[static_cast<size_t>(above)] = x;
        low += x <= high ? 1 : 0;
        above += x <= high ? 0 : 1;
      }
      std::copy_n(above_.begin(), above, from + low);
      if (low >= want) {
        std::sort(from, from + low);
        sorted_ += low;
        return;
      }
    }
    const int64_t n = std::min(want, rest);
    if (n < rest) std::nth_element(from, from + n, from + rest);
    std::sort(from, from + n);
    sorted_ += n;
  }

  std::vector<float> scores_, above_;
  int64_t sorted_ = 0;
};

// The next block that a table would free.
struct BlockCost {
  float cost;
  int table;
  int64_t evicted;  // slots gone with it
  // For a heap with the cheapest on top; equal: the lower table.
  bool operator<(const BlockCost& o) const {
    return cost != o.cost ? cost > o.cost : table > o.table;
  }
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
    std::vector<Ascending> scores(static_cast<size_t>(m.n_tables()));
    std::priority_queue<BlockCost> costs;
    const auto offer = [&](int t, int64_t evicted) {
      if (evicted == 0 || evicted > in.live[t]) return;
      const float cost = scores[static_cast<size_t>(t)].at(evicted - 1);
      if (!std::isinf(cost)) costs.push({cost, t, evicted});  // else a protected slot would go
    };
    for (int t = 0; t < m.n_tables(); ++t) {
      keep[t] = in.live[t];
      if (!m.compressed(t / m.n_kv_heads)) continue;
      held += (in.live[t] + bs - 1) / bs;
      allowed += in.budget + in.pinned[t];
      scores[static_cast<size_t>(t)].reset(in.scores[t]);
      offer(t, last_block(in.live[t], bs));
    }
    allowed = (allowed + bs - 1) / bs;
    // Costs rise within a table, so the cheapest of all are a prefix of each.
    for (int64_t n = held - allowed; n > 0 && !costs.empty(); --n) {
      const BlockCost next = costs.top();
      costs.pop();
      keep[next.table] = in.live[next.table] - next.evicted;
      offer(next.table, next.evicted + bs);
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
