#include "base/percentile.h"

#include <gtest/gtest.h>

namespace pagefold {
namespace {

TEST(Percentile, IsANearestRank) {
  EXPECT_EQ(percentile({5, 1, 4, 2, 3}, 0.5), 3);
  EXPECT_EQ(percentile({5, 1, 4, 2, 3}, 0.99), 5);
  EXPECT_EQ(percentile({1, 2, 3, 4, 5}, 0), 1);
  EXPECT_EQ(percentile({1, 2, 3, 4, 5}, 1), 5);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(percentile({7}, 0.01), 7);
  EXPECT_TRUE(std::isnan(percentile({}, 0.5)));
}

}  // namespace
}  // namespace pagefold
