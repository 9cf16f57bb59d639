#include "kv/budget.h"

#include <algorithm>
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
  auto low = static_cast<int64_t>(static_cast<double>(base) / beta);
  int64_t high = 2 * base - low;
  if (high > most) {
    high = std::max(most, base);
    low = 2 * base - high;
  }
  // Layer l is high - l (high - low) / (layers - 1), in whole slots with the exact sum.
  const int64_t steps = layers - 1;
  std::vector<int64_t> rest(line.size());
  int64_t sum = 0;
  for (int64_t l = 0; l < layers; ++l) {
    const int64_t scaled = high * steps - l * (high - low);
    line[static_cast<size_t>(l)] = scaled / steps;
    rest[static_cast<size_t>(l)] = scaled % steps;
    sum += scaled / steps;
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
