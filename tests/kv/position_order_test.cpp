#include "kv/position_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace pagefold {
namespace {

TEST(PositionOrder, IsThatOfAStableSort) {
  std::mt19937 rng(1);
  for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{300}, size_t{5000}}) {
    for (const int32_t most : {0, 1, 2047, 2048, 4'194'304, 0x7fffffff}) {
      std::uniform_int_distribution<int32_t> position(0, most);
      std::vector<uint64_t> keys;
      for (size_t i = 0; i < n; ++i)
        keys.push_back(position_key(position(rng), static_cast<int64_t>(i * 7 % 5003)));
      if (n > 1) keys[1] = position_key(most, 3);
      std::vector<uint64_t> want = keys;
      std::stable_sort(want.begin(), want.end(),
                       [](uint64_t a, uint64_t b) { return a >> 32 < b >> 32; });
      sort_by_position(keys);
      EXPECT_EQ(keys, want) << n << " " << most;
    }
  }
}

TEST(PositionOrder, KeysGiveTheirSlotsBack) {
  EXPECT_EQ(slot_of(position_key(0x7fffffff, 123456)), 123456u);
  EXPECT_LT(position_key(4, 1000), position_key(5, 0));
}

}  // namespace
}  // namespace pagefold
