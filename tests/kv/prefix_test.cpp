#include "kv/prefix.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace pagefold {
namespace {

using Time = PrefixIndex::Time;
using std::chrono::seconds;

constexpr int kSize = 16;

Time at(int64_t second) { return Time{} + seconds(second); }

std::vector<int32_t> numbers(int64_t n, int32_t first) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(first + static_cast<int32_t>(i));
  return tokens;
}

// Sequences of a tiny cache and the index over their blocks.
class PrefixTest : public ::testing::Test {
 protected:
  void make(PrefixIndex::Limits limits, std::vector<int64_t> windows = {0, 0},
            uint32_t blocks = 400, uint64_t hash_mask = ~uint64_t{0}) {
    if (index_) TearDown();
    shape_ = {static_cast<int>(windows.size()), 2, kSize, std::move(windows)};
    pool_ = std::make_unique<BlockPool>(blocks);
    index_ = std::make_unique<PrefixIndex>(shape_, *pool_, limits, 7, hash_mask);
  }
  void TearDown() override {
    for (auto& s : sequences_) end(*s);
    index_->check_invariants();
    index_->clear(freed_);
    pool_->check_invariants();
    EXPECT_EQ(pool_->free_count(), pool_->total());
  }

  struct Sequence {
    explicit Sequence(const CacheShape& shape) : cache(shape) {}
    std::string salt;
    std::vector<int32_t> tokens;
    SequenceCache cache;
    PrefixIndex::Cursor cursor;
    int64_t hit = 0;
  };
  // Looks its tokens up, "computes" the rest in one go and publishes.
  Sequence& run(std::vector<int32_t> tokens, int64_t second, std::string salt = {}) {
    auto s = std::make_unique<Sequence>(shape_);
    s->salt = std::move(salt);
    const PrefixIndex::Hit hit = index_->find(s->salt, tokens, 1 << 20);
    s->hit = hit.blocks();
    s->cache.adopt_chain(*pool_, hit.groups);
    s->cursor = hit.cursor;
    index_->touch(s->cursor, at(second));
    sequences_.push_back(std::move(s));
    Sequence& made = *sequences_.back();
    made.tokens = std::move(tokens);
    grow(made, static_cast<int64_t>(made.tokens.size()) - made.hit * kSize, second);
    return made;
  }
  void grow(Sequence& s, int64_t rows, int64_t second) {
    EXPECT_TRUE(s.cache.reserve(*pool_, rows));
    s.cache.fill(rows);
    index_->publish(s.salt, s.tokens, s.cache, at(second), s.cursor, freed_);
    s.cache.leave_windows(*pool_, freed_);
    s.cache.check_invariants(*pool_);
    index_->check_invariants();
    pool_->check_invariants();
  }
  void end(Sequence& s) { s.cache.free_all(*pool_, freed_); }
  int64_t found(const std::vector<int32_t>& tokens, std::string_view salt = {}) {
    return index_->find(salt, tokens, 1 << 20).blocks();
  }

  CacheShape shape_;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<PrefixIndex> index_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<BlockId> freed_;
};

TEST_F(PrefixTest, FindsTheLongestCommonBlocks) {
  make({100, {}});
  const auto prompt = numbers(70, 0);  // four full blocks
  Sequence& a = run(prompt, 1);
  EXPECT_EQ(a.hit, 0);
  EXPECT_EQ(index_->entries(), 4);
  EXPECT_EQ(found(prompt), 4);
  EXPECT_EQ(index_->find({}, prompt, 3).blocks(), 3);
  EXPECT_EQ(found(numbers(63, 0)), 3);
  EXPECT_EQ(found(numbers(15, 0)), 0);
  auto other = prompt;
  other[40] = 9999;
  EXPECT_EQ(found(other), 2);
  // The blocks of the hit are those of the sequence.
  const PrefixIndex::Hit hit = index_->find({}, prompt, 4);
  for (size_t b = 0; b < 4; ++b) {
    for (size_t t = 0; t < 4; ++t) EXPECT_EQ(hit.groups[b][t], a.cache.tables()[t].blocks[b]);
  }
  // A block of the middle is found only after those before it.
  EXPECT_EQ(found(numbers(32, 16)), 0);
}

TEST_F(PrefixTest, SharersTakeNoBlocksAndPublishWhatIsNew) {
  make({100, {}});
  run(numbers(64, 0), 1);
  const uint32_t used = pool_->used_count();
  auto longer = numbers(64, 0);
  for (int i = 0; i < 32; ++i) longer.push_back(5000 + i);
  Sequence& b = run(longer, 2);
  EXPECT_EQ(b.hit, 4);
  EXPECT_EQ(pool_->used_count(), used + 2 * 4);
  EXPECT_EQ(index_->entries(), 6);
  EXPECT_EQ(index_->shared_blocks(index_->find({}, longer, 6)), 6 * 4);
  // The same tokens computed twice at once: the index keeps the first copy.
  EXPECT_EQ(found(longer), 6);
  for (auto& s : sequences_) end(*s);
  EXPECT_EQ(pool_->idle_count(), 6u * 4);
  EXPECT_EQ(index_->shared_blocks(index_->find({}, longer, 6)), 0);
}

TEST_F(PrefixTest, SaltsKeepTenantsApart) {
  make({100, {}});
  const auto prompt = numbers(48, 0);
  run(prompt, 1, "a");
  EXPECT_EQ(found(prompt, "a"), 3);
  EXPECT_EQ(found(prompt, "b"), 0);
  EXPECT_EQ(found(prompt), 0);
  EXPECT_EQ(run(prompt, 2, "b").hit, 0);
  EXPECT_EQ(index_->entries(), 6);
}

TEST_F(PrefixTest, CollidingHashesGiveNoWrongHit) {
  make({100, {}}, {0, 0}, 400, /*hash_mask=*/0);
  const auto one = numbers(64, 0), two = numbers(64, 1);
  run(one, 1);
  EXPECT_EQ(found(two), 0);
  EXPECT_EQ(found(one, "salt"), 0);
  run(two, 2);
  // The second block of `one` below the first of `two` is another prefix.
  auto mixed = numbers(16, 1);
  const auto tail = numbers(16, 16);
  mixed.insert(mixed.end(), tail.begin(), tail.end());
  EXPECT_EQ(found(mixed), 1);
  EXPECT_EQ(found(one), 4);
  EXPECT_EQ(found(two), 4);
}

TEST_F(PrefixTest, ReclaimsWhatWasNotUsedForLongest) {
  make({100, {}}, {0, 0}, 60);
  const auto first = numbers(64, 0), second = numbers(64, 1000), third = numbers(64, 2000);
  end(run(first, 1));
  end(run(second, 2));
  end(run(third, 3));
  EXPECT_EQ(pool_->free_count(), 60u - 48);
  EXPECT_TRUE(index_->reclaim(12, freed_));  // is there already
  EXPECT_EQ(index_->entries(), 12);
  end(run(first, 4));  // used again
  // From the end of the chain that was not used for longest.
  freed_.clear();
  EXPECT_TRUE(index_->reclaim(13, freed_));
  EXPECT_EQ(freed_.size(), 4u);
  EXPECT_EQ(found(second), 3);
  EXPECT_TRUE(index_->reclaim(28, freed_));
  EXPECT_EQ(found(second), 0);
  EXPECT_EQ(found(third), 4);
  EXPECT_EQ(found(first), 4);
  EXPECT_FALSE(index_->reclaim(61, freed_));
  EXPECT_EQ(index_->entries(), 8);
  EXPECT_TRUE(index_->reclaim(60, freed_));
  EXPECT_EQ(index_->entries(), 0);
}

TEST_F(PrefixTest, LeavesWhatIsInUseUntilNothingElseHelps) {
  make({100, {}}, {0, 0}, 40);
  Sequence& running = run(numbers(64, 0), 1);
  end(run(numbers(64, 1000), 2));
  EXPECT_TRUE(index_->reclaim(40 - 16, freed_));
  EXPECT_EQ(found(running.tokens), 4);  // although it was not used for longest
  EXPECT_EQ(index_->entries(), 4);
  EXPECT_FALSE(index_->reclaim(40 - 15, freed_));
  EXPECT_EQ(index_->entries(), 4);
  // Published anew after its entries were taken away.
  while (index_->drop_oldest(freed_)) {
  }
  EXPECT_EQ(pool_->free_count(), 40u - 16);
  const auto more = numbers(16, 64);
  running.tokens.insert(running.tokens.end(), more.begin(), more.end());
  grow(running, 16, 5);
  EXPECT_EQ(found(numbers(80, 0)), 5);
}

TEST_F(PrefixTest, TheCapHoldsAndTheOldestGivesWay) {
  make({5, {}});
  end(run(numbers(48, 0), 1));
  end(run(numbers(64, 1000), 2));
  EXPECT_EQ(index_->entries(), 5);
  EXPECT_EQ(found(numbers(48, 0)), 1);
  EXPECT_EQ(found(numbers(64, 1000)), 4);
  // A chain never pushes itself out.
  end(run(numbers(160, 5000), 3));
  EXPECT_EQ(index_->entries(), 5);
  EXPECT_EQ(found(numbers(160, 5000)), 5);
  make({0, {}});
  end(run(numbers(64, 0), 1));
  EXPECT_EQ(index_->entries(), 0);
}

TEST_F(PrefixTest, UnusedEntriesExpire) {
  make({100, seconds(10)});
  EXPECT_EQ(index_->next_expiry(), Time::max());
  end(run(numbers(32, 0), 1));
  end(run(numbers(32, 1000), 5));
  EXPECT_EQ(index_->next_expiry(), at(11));
  index_->expire(at(10), freed_);
  EXPECT_EQ(index_->entries(), 4);
  index_->expire(at(11), freed_);
  EXPECT_EQ(found(numbers(32, 0)), 0);
  EXPECT_EQ(found(numbers(32, 1000)), 2);
  // In use counts as used.
  Sequence& running = run(numbers(32, 2000), 12);
  index_->expire(at(30), freed_);
  EXPECT_EQ(found(numbers(32, 1000)), 0);
  EXPECT_EQ(found(running.tokens), 2);
  end(running);
  index_->expire(at(39), freed_);
  EXPECT_EQ(found(running.tokens), 2);
  index_->expire(at(40), freed_);
  EXPECT_EQ(index_->entries(), 0);
  EXPECT_EQ(index_->counts().expired, 6u);
}

// A layer with a window needs only the blocks that the window reaches; a hit may end only where
// they are all there.
TEST_F(PrefixTest, WindowsNeedTheirOwnBlocksOnly) {
  make({100, {}}, {0, 40});
  Sequence& a = run(numbers(160, 0), 1);  // ten blocks, published before the window left the first
  EXPECT_EQ(found(a.tokens), 10);
  Sequence& b = run(numbers(160, 0), 2);
  EXPECT_EQ(b.hit, 10);
  // 160 - 40 slots lie before the window: seven blocks of its two tables are not held.
  EXPECT_EQ(b.cache.held_blocks(), 4 * 10 - 2 * 7);
  EXPECT_EQ(b.cache.tables()[2].start, 112);
  while (index_->drop_oldest(freed_)) {
  }
  // Published anew: the window's old blocks are gone, hits end where it is whole again.
  const auto more = numbers(16, 160);
  a.tokens.insert(a.tokens.end(), more.begin(), more.end());
  grow(a, 16, 3);
  EXPECT_EQ(found(a.tokens), 11);
  EXPECT_EQ(found(numbers(160, 0)), 10);
  EXPECT_EQ(found(numbers(144, 0)), 0);  // its window would reach blocks 6 to 8; 6 is gone
}

// Against a list of all prefixes that were ever published and not yet removed.
TEST_F(PrefixTest, RandomOperationsKeepEveryCount) {
  for (const uint64_t mask : {~uint64_t{0}, uint64_t{3}}) {
    make({12, seconds(50)}, {0, 24}, 260, mask);
    std::mt19937 random(3);
    const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
    std::vector<std::unique_ptr<Sequence>> live;
    for (int step = 0; step < 4000; ++step) {
      switch (below(6)) {
        case 0:
        case 1:
        case 2: {
          if (live.size() > 4) break;
          auto tokens = numbers(16 * (1 + below(2)), 0);
          for (int64_t i = below(60); i > 0; --i) tokens.push_back(static_cast<int32_t>(below(2)));
          Sequence& s = run(tokens, step, below(4) == 0 ? "salt" : "");
          live.push_back(std::move(sequences_.back()));
          sequences_.pop_back();
          EXPECT_EQ(s.cache.tables()[0].len, static_cast<int64_t>(tokens.size()));
          break;
        }
        case 3:
          if (live.empty()) break;
          index_->touch(live.back()->cursor, at(step));
          end(*live.back());
          live.pop_back();
          break;
        case 4:
          index_->expire(at(step), freed_);
          break;
        default:
          if (below(8) == 0) index_->reclaim(250 - below(60), freed_);
      }
      index_->check_invariants();
      pool_->check_invariants();
    }
    EXPECT_GT(index_->counts().published, 1000u);
    EXPECT_GT(index_->counts().reclaimed, 100u);
    EXPECT_GT(index_->counts().expired, 20u);
    for (auto& s : live) end(*s);
    index_->clear(freed_);
    EXPECT_EQ(pool_->free_count(), pool_->total());
  }
}

}  // namespace
}  // namespace pagefold
