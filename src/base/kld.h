// Kullback-Leibler divergence of two next-token distributions, from their logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pagefold {

// Of one row: sum p (log p - log q) in nats, where p = softmax(a) and q = softmax(b). The
// vocabulary may come in slices, first to last. Equal logits give exactly 0; otherwise rounding may
// leave a hair less than nothing.
class KldRow {
 public:
  // Logits [first, first + n) of the vocabulary.
  void add(const float* a, const float* b, int64_t n, int64_t first = 0) {
    raise(a, n, first, a_);
    raise(b, n, first, b_);
    for (int64_t i = 0; i < n; ++i) {
      const double p = std::exp(double{a[i]} - a_.most);
      a_.sum += p;
      a_.cross += p * (double{a[i]} - double{b[i]});
      b_.sum += std::exp(double{b[i]} - b_.most);
    }
  }
  // log p = a - log sum exp(a).
  double kld() const {
    return a_.cross / a_.sum - (a_.most + std::log(a_.sum)) + (b_.most + std::log(b_.sum));
  }
  bool same_top() const { return a_.top == b_.top; }  // of equal logits the first

 private:
  // Sums of exp(x), and of exp(a) (a - b), relative to the largest value seen.
  struct Side {
    double most = -INFINITY, sum = 0, cross = 0;
    int64_t top = -1;
  };
  static void raise(const float* x, int64_t n, int64_t first, Side& side) {
    const float* best = std::max_element(x, x + n);
    if (!(double{*best} > side.most)) return;
    const double factor = std::isinf(side.most) ? 0 : std::exp(side.most - double{*best});
    side.sum *= factor;
    side.cross *= factor;
    side.most = double{*best};
    side.top = first + (best - x);
  }
  Side a_, b_;
};

}  // namespace pagefold
