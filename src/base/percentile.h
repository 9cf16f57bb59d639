// Percentiles of a sample: one rule for every report.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace pagefold {

// Nearest rank: the least value that a share `p` of all values does not exceed. NaN of none.
inline double percentile(std::vector<double> values, double p) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double rank = std::clamp(std::ceil(p * n), 1.0, n);
  return values[static_cast<size_t>(rank) - 1];
}

}  // namespace pagefold
