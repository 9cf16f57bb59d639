#include "base/kld.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagefold {
namespace {

// softmax(0, log 2, log 5) = (1, 2, 5) / 8; softmax(0, 0, log 2) = (1, 1, 2) / 4.
const std::vector<float> kA = {0, std::log(2.0f), std::log(5.0f)};
const std::vector<float> kB = {0, 0, std::log(2.0f)};
const double kByHand = 1 / 8.0 * std::log(0.5) + 5 / 8.0 * std::log(1.25);

TEST(Kld, IsWhatTheFormulaSays) {
  KldRow row;
  row.add(kA.data(), kB.data(), 3);
  EXPECT_NEAR(row.kld(), kByHand, 1e-7);
  EXPECT_TRUE(row.same_top());
}

TEST(Kld, SlicesGiveTheSame) {
  KldRow row;
  for (int64_t i = 0; i < 3; ++i) row.add(kA.data() + i, kB.data() + i, 1, i);
  EXPECT_NEAR(row.kld(), kByHand, 1e-7);
}

TEST(Kld, EqualLogitsGiveNothingAtAll) {
  std::vector<float> x;
  for (int i = 0; i < 1000; ++i) x.push_back(std::sin(static_cast<float>(i)) * 30);
  KldRow whole, sliced;
  whole.add(x.data(), x.data(), 1000);
  for (int64_t i = 0; i < 1000; i += 250) sliced.add(x.data() + i, x.data() + i, 250, i);
  EXPECT_EQ(whole.kld(), 0);
  EXPECT_EQ(sliced.kld(), 0);
}

TEST(Kld, TopsDiffer) {
  const std::vector<float> other = {1, 0, 0};
  KldRow row;
  row.add(kA.data(), other.data(), 3);
  EXPECT_FALSE(row.same_top());
  EXPECT_GT(row.kld(), 0);
}

}  // namespace
}  // namespace pagefold
