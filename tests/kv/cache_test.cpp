#include "kv/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace pagefold {
namespace {

CacheShape windowed_shape(std::vector<int64_t> windows, int heads = 2, int block = 16) {
  return {static_cast<int>(windows.size()), heads, block, std::move(windows)};
}

TEST(SequenceCache, TakesWhatTheRowsNeed) {
  const CacheShape shape = windowed_shape({0, 0});
  BlockPool pool(64);
  SequenceCache cache(shape);
  std::vector<BlockId> freed;
  EXPECT_EQ(cache.blocks_needed(17), 8);
  ASSERT_TRUE(cache.reserve(pool, 17));
  EXPECT_EQ(cache.held_blocks(), 8);
  EXPECT_EQ(cache.table(0, 0).len, 0);
  // The blocks of one table follow each other.
  EXPECT_EQ(cache.table(1, 0).blocks[1], cache.table(1, 0).blocks[0] + 1);
  cache.commit(pool, 17, freed);
  EXPECT_EQ(cache.table(1, 1).len, 17);
  ASSERT_TRUE(cache.reserve(pool, 15));  // fits in what is there
  EXPECT_EQ(cache.held_blocks(), 8);
  cache.commit(pool, 15, freed);
  EXPECT_EQ(cache.blocks_needed(1), 4);
  EXPECT_EQ(cache.held_slots(), 4 * 32);
  EXPECT_TRUE(freed.empty());
  cache.free_all(pool, freed);
  EXPECT_EQ(freed.size(), 8u);
  EXPECT_EQ(pool.used_count(), 0u);
  EXPECT_EQ(cache.table(0, 0).len, 0);
}

TEST(SequenceCache, AllOrNothing) {
  const CacheShape shape = windowed_shape({0, 0});
  BlockPool pool(7);
  SequenceCache cache(shape);
  std::vector<BlockId> freed;
  EXPECT_FALSE(cache.reserve(pool, 17));
  EXPECT_EQ(pool.used_count(), 0u);
  ASSERT_TRUE(cache.reserve(pool, 16));
  cache.commit(pool, 16, freed);
  EXPECT_FALSE(cache.reserve(pool, 1));
  EXPECT_EQ(cache.held_blocks(), 4);
  cache.free_all(pool, freed);
}

// Window 20, block 16, one head: by hand. Slot < len - 20 is never needed again.
TEST(SequenceCache, WindowsGiveWholeBlocksBack) {
  const CacheShape shape = windowed_shape({20, 0}, 1);
  BlockPool pool(64);
  SequenceCache cache(shape);
  std::vector<BlockId> freed;
  ASSERT_TRUE(cache.reserve(pool, 35));
  const BlockId first = cache.table(0, 0).blocks[0];
  cache.commit(pool, 35, freed);  // slots 15.. are needed: block 0 stays
  EXPECT_TRUE(freed.empty());
  ASSERT_TRUE(cache.reserve(pool, 1));
  cache.commit(pool, 1, freed);  // slots 16.. are needed
  EXPECT_EQ(freed, std::vector<BlockId>{first});
  EXPECT_EQ(cache.table(0, 0).start, 16);
  EXPECT_EQ(cache.table(0, 0).blocks[0], kNoBlock);
  EXPECT_EQ(cache.table(1, 0).start, 0);
  EXPECT_EQ(cache.held_blocks(), 2 + 3);
  EXPECT_EQ(cache.held_slots(), 20 + 36);
  freed.clear();
  ASSERT_TRUE(cache.reserve(pool, 100));
  cache.commit(pool, 100, freed);  // len 136: slots 116.. are needed, blocks 1 to 6 go
  EXPECT_EQ(freed.size(), 6u);
  EXPECT_EQ(cache.table(0, 0).start, 112);
  cache.free_all(pool, freed);
  EXPECT_EQ(pool.used_count(), 0u);
}

TEST(SequenceCache, PeakBlocksBoundsEveryStep) {
  std::mt19937 rng(3);
  for (int round = 0; round < 200; ++round) {
    const CacheShape shape = windowed_shape(
        {static_cast<int64_t>(rng() % 100), 0, static_cast<int64_t>(1 + rng() % 40)});
    BlockPool pool(4096);
    SequenceCache cache(shape);
    std::vector<BlockId> freed;
    const int64_t step = 1 + static_cast<int64_t>(rng() % 50);
    int64_t len = 0;
    for (int i = 0; i < 20; ++i) {
      const int64_t rows = 1 + static_cast<int64_t>(rng()) % step;
      ASSERT_TRUE(cache.reserve(pool, rows));
      len += rows;
      ASSERT_LE(cache.held_blocks(), shape.peak_blocks(len, step));
      cache.commit(pool, rows, freed);
    }
    cache.free_all(pool, freed);
  }
}

// 10,000 random steps of several sequences against a list of tokens a sequence: no leak, no block
// with two owners, tables as long as the tokens.
TEST(SequenceCache, RandomOperationsAgainstANaiveModel) {
  std::mt19937 rng(11);
  const CacheShape shape = windowed_shape({0, 24}, 2);
  BlockPool pool(300);
  struct Naive {
    std::unique_ptr<SequenceCache> cache;
    int64_t tokens = 0;
  };
  std::vector<Naive> live;
  std::vector<BlockId> freed;
  for (int step = 0; step < 10000; ++step) {
    const uint32_t what = rng() % 10;
    if (live.empty() || (what == 0 && live.size() < 12)) {
      live.push_back({std::make_unique<SequenceCache>(shape), 0});
    } else if (what < 8) {
      Naive& s = live[rng() % live.size()];
      const int64_t rows = 1 + static_cast<int64_t>(rng() % 40);
      if (s.cache->reserve(pool, rows)) {
        s.cache->commit(pool, rows, freed);
        s.tokens += rows;
      }
    } else {
      const size_t i = rng() % live.size();
      live[i].cache->free_all(pool, freed);
      live[i].tokens = 0;
      if (what == 9) live.erase(live.begin() + static_cast<int64_t>(i));
    }
    std::set<BlockId> owned;
    size_t expected = 0;
    for (const Naive& s : live) {
      for (int t = 0; t < 4; ++t) {
        const TableView& v = s.cache->table(t / 2, t % 2);
        ASSERT_EQ(v.len, s.tokens);
        const int64_t first = t < 2 ? 0 : std::max<int64_t>(0, s.tokens - 24) / 16;
        ASSERT_EQ(v.start, first * 16);
        for (int64_t b = 0; b < (s.tokens + 15) / 16; ++b) {
          if (b < first) {
            ASSERT_EQ(v.blocks[b], kNoBlock);
            continue;
          }
          ASSERT_TRUE(owned.insert(v.blocks[b]).second) << "a block with two owners";
          ++expected;
        }
      }
    }
    ASSERT_EQ(pool.used_count(), expected);
  }
  for (const Naive& s : live) s.cache->free_all(pool, freed);
  EXPECT_EQ(pool.used_count(), 0u);
  pool.check_invariants();
}

}  // namespace
}  // namespace pagefold
