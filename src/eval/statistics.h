// Small statistics with fixed seeds: the same values give the same figures, to the last digit.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace pagefold::eval {

double mean(std::span<const double> values);  // NaN of none

struct Interval {
  double low = 0, high = 0;
};
// 95 % of the means of resampled units (texts, blocks of tokens, cases): percentile bootstrap,
// 2,000 resamples with a fixed seed. Units are drawn whole. weights: how much each unit counts;
// empty: all alike. One unit or none: NaN.
Interval bootstrap_mean(std::span<const double> units, std::span<const double> weights = {});

// Two-sided exact sign test: the chance of a split at least as uneven of `wins` + `losses` fair
// coins. Ties are left out by the caller. For paired right and wrong answers this is McNemar's
// exact test. 1 of none.
double sign_test(int64_t wins, int64_t losses);

// Wilson's interval of a share, 95 %: also for 0 and 1. NaN of none.
Interval wilson(int64_t right, int64_t n);

}  // namespace pagefold::eval
