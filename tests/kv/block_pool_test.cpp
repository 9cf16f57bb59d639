#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace pagefold {
namespace {

TEST(BlockPool, GivesTheLowestFreeBlocksInOrder) {
  BlockPool pool(200);
  std::vector<BlockId> a(5), b(3);
  ASSERT_TRUE(pool.allocate(a));
  ASSERT_TRUE(pool.allocate(b));
  EXPECT_EQ(a, (std::vector<BlockId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(b, (std::vector<BlockId>{5, 6, 7}));
  for (const BlockId id : {1u, 3u, 6u}) EXPECT_TRUE(pool.release(id));
  ASSERT_TRUE(pool.allocate(a));
  EXPECT_EQ(a, (std::vector<BlockId>{1, 3, 6, 8, 9}));
}

TEST(BlockPool, AllOrNothing) {
  BlockPool pool(10);
  std::vector<BlockId> a(7), b(4, 99);
  ASSERT_TRUE(pool.allocate(a));
  EXPECT_FALSE(pool.allocate(b));
  EXPECT_EQ(b, std::vector<BlockId>(4, 99));
  EXPECT_EQ(pool.free_count(), 3u);
  pool.check_invariants();
}

TEST(BlockPool, ASharedBlockIsFreeWhenItsLastOwnerLeaves) {
  BlockPool pool(2);
  std::vector<BlockId> a(1);
  ASSERT_TRUE(pool.allocate(a));
  pool.share(a[0]);
  EXPECT_FALSE(pool.release(a[0]));
  EXPECT_EQ(pool.used_count(), 1u);
  EXPECT_TRUE(pool.release(a[0]));
  EXPECT_EQ(pool.used_count(), 0u);
}

// Sizes at the edges of the bit tree.
TEST(BlockPool, EveryBlockOnce) {
  for (const uint32_t n : {1u, 63u, 64u, 65u, 4095u, 4096u, 4097u, 300000u}) {
    BlockPool pool(n);
    std::vector<BlockId> all(n), one(1);
    ASSERT_TRUE(pool.allocate(all));
    for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(all[i], i);
    EXPECT_FALSE(pool.allocate(one));
    pool.check_invariants();
    EXPECT_TRUE(pool.release(n - 1));
    ASSERT_TRUE(pool.allocate(one));
    EXPECT_EQ(one[0], n - 1);
    pool.check_invariants();
  }
}

TEST(BlockPool, RandomOperationsAgainstANaiveModel) {
  std::mt19937 rng(7);
  BlockPool pool(777);
  std::map<BlockId, int> owners;  // the naive model
  for (int step = 0; step < 10000; ++step) {
    const uint32_t what = rng() % 100;
    if (what < 45) {
      std::vector<BlockId> got(rng() % 40);
      const bool ok = pool.allocate(got);
      ASSERT_EQ(ok, got.size() <= 777 - owners.size());
      BlockId lowest = 0;
      for (size_t i = 0; ok && i < got.size(); ++i) {
        while (owners.count(lowest) != 0) ++lowest;
        ASSERT_EQ(got[i], lowest);
        owners[lowest] = 1;
      }
    } else if (!owners.empty()) {
      auto it = owners.begin();
      std::advance(it, rng() % owners.size());
      if (what < 55) {
        pool.share(it->first);
        ++it->second;
      } else {
        // Several at once, so that the pool empties and fills.
        for (uint32_t k = rng() % 30; k > 0 && !owners.empty(); --k) {
          it = owners.begin();
          std::advance(it, rng() % owners.size());
          ASSERT_EQ(pool.release(it->first), it->second == 1);
          if (--it->second == 0) owners.erase(it);
        }
      }
    }
    ASSERT_EQ(pool.used_count(), owners.size());
    if (step % 100 == 0) {
      pool.check_invariants();
      for (uint32_t b = 0; b < 777; ++b) {
        const auto it = owners.find(b);
        ASSERT_EQ(pool.owners(b), it == owners.end() ? 0u : static_cast<uint32_t>(it->second));
      }
    }
  }
}

}  // namespace
}  // namespace pagefold
