#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pagefold::eval {
namespace {

TEST(Statistics, SignTestCountsCoins) {
  EXPECT_NEAR(sign_test(1, 5), 2 * (1 + 6) / 64.0, 1e-12);
  EXPECT_NEAR(sign_test(0, 10), 2 / 1024.0, 1e-12);
  EXPECT_EQ(sign_test(3, 3), 1);
  EXPECT_EQ(sign_test(0, 0), 1);
  EXPECT_LT(sign_test(200, 400), 1e-10);  // large counts do not overflow
}

TEST(Statistics, WilsonHasRoomAtTheEdges) {
  const Interval eight = wilson(8, 10);  // Wilson 1927, by hand
  EXPECT_NEAR(eight.low, 0.4901625, 1e-6);
  EXPECT_NEAR(eight.high, 0.9433178, 1e-6);
  EXPECT_EQ(wilson(0, 10).low, 0);
  EXPECT_NEAR(wilson(0, 10).high, 0.2775328, 1e-6);
  EXPECT_EQ(wilson(10, 10).high, 1);
  EXPECT_TRUE(std::isnan(wilson(0, 0).low));
}

TEST(Statistics, BootstrapIsRepeatableAndBracketsTheMean) {
  std::vector<double> values;
  for (int i = 0; i < 50; ++i) values.push_back(std::sin(i));
  const Interval a = bootstrap_mean(values), b = bootstrap_mean(values);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_LT(a.low, mean(values));
  EXPECT_GT(a.high, mean(values));
  // About twice 1.96 standard errors wide.
  EXPECT_NEAR(a.high - a.low, 2 * 1.96 * 0.7 / std::sqrt(50.0), 0.06);
  const Interval same = bootstrap_mean(std::vector<double>{2, 2, 2});
  EXPECT_EQ(same.low, 2);
  EXPECT_EQ(same.high, 2);
  EXPECT_TRUE(std::isnan(bootstrap_mean(std::vector<double>{1}).low));
  // A unit without weight says nothing.
  const std::vector<double> weights = {1, 1, 0};
  EXPECT_EQ(bootstrap_mean(std::vector<double>{2, 2, 99}, weights).high, 2);
}

}  // namespace
}  // namespace pagefold::eval
