#include "kv/budget.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pagefold {

void fit_counts(int64_t* keep, const int64_t* low, const int64_t* high, int n, int64_t total) {
  int64_t sum = 0;
  for (int i = 0; i < n; ++i) {
    keep[i] = std::clamp(keep[i], low[i], std::max(low[i], high[i]));
    sum += keep[i];
  }
  for (int i = 0; i < n && sum != total; ++i) {
    const int64_t change = sum < total ? std::min(total - sum, high[i] - keep[i])
                                       : -std::min(sum - total, keep[i] - low[i]);
    keep[i] += change;
    sum += change;
  }
}

std::vector<int64_t> pyramid_line(int64_t base, double beta, int layers, int64_t most) {
  std::vector<int64_t> line(static_cast<size_t>(layers), base);
  if (layers < 2) return line;
  double low = static_cast<double>(base) / beta;
  double high = 2.0 * static_cast<double>(base) - low;
  if (high > static_cast<double>(most)) {
    high = static_cast<double>(std::max(most, base));
    low = 2.0 * static_cast<double>(base) - high;
  }
  // Parts are compared on a grid, so that rounding of the doubles decides nothing.
  constexpr double kGrid = 1e6;
  std::vector<int64_t> rest(line.size());
  int64_t sum = 0;
  for (size_t l = 0; l < line.size(); ++l) {
    const double exact = high - static_cast<double>(l) * (high - low) / (layers - 1);
    line[l] = static_cast<int64_t>(std::floor(exact + 1 / kGrid));
    rest[l] = std::llround((exact - static_cast<double>(line[l])) * kGrid);
    sum += line[l];
  }
  std::vector<int> order(line.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return rest[static_cast<size_t>(a)] > rest[static_cast<size_t>(b)];
  });
  for (size_t i = 0; sum < base * layers; ++i, ++sum) ++line[static_cast<size_t>(order[i])];
  return line;
}

}  // namespace pagefold
