#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/percentile.h"
#include "base/random.h"

namespace pagefold::eval {
namespace {

constexpr uint64_t kSeed = 20240607;
constexpr size_t kResamples = 2000;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

double mean(std::span<const double> values) {
  if (values.empty()) return kNone;
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

Interval bootstrap_mean(std::span<const double> units, std::span<const double> weights) {
  if (units.size() < 2) return {kNone, kNone};
  std::vector<double> means(kResamples);
  uint64_t draw = 0;
  for (double& m : means) {
    double sum = 0, weight = 0;
    for (size_t i = 0; i < units.size(); ++i) {
      const auto at =
          static_cast<size_t>(uniform01(kSeed, draw++) * static_cast<double>(units.size()));
      const double w = weights.empty() ? 1 : weights[at];
      sum += w * units[at];
      weight += w;
    }
    m = weight > 0 ? sum / weight : kNone;
  }
  return {percentile(means, 0.025), percentile(means, 0.975)};
}

double sign_test(int64_t wins, int64_t losses) {
  const int64_t n = wins + losses, few = std::min(wins, losses);
  if (n == 0) return 1;
  const auto log_choose = [n](int64_t k) {
    return std::lgamma(static_cast<double>(n + 1)) - std::lgamma(static_cast<double>(k + 1)) -
           std::lgamma(static_cast<double>(n - k + 1));
  };
  double tail = 0;
  for (int64_t k = 0; k <= few; ++k)
    tail += std::exp(log_choose(k) - static_cast<double>(n) * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

Interval wilson(int64_t right, int64_t n) {
  if (n <= 0) return {kNone, kNone};
  constexpr double z = 1.959963984540054;
  const double size = static_cast<double>(n), p = static_cast<double>(right) / size;
  const double middle = (p + z * z / (2 * size)) / (1 + z * z / size);
  const double half =
      z / (1 + z * z / size) * std::sqrt(p * (1 - p) / size + z * z / (4 * size * size));
  return {right == 0 ? 0 : std::max(0.0, middle - half),
          right == n ? 1 : std::min(1.0, middle + half)};
}

}  // namespace pagefold::eval
