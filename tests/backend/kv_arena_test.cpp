#include "backend/cpu/kv_arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <numeric>
#include <random>

#include "base/system.h"

namespace pagefold::cpu {
namespace {

// What the kernel says is in memory.
uint64_t by_mincore(const KvArena& a, uint32_t n_blocks) {
  const size_t pages = (a.block_bytes() * n_blocks + 4095) / 4096;
  std::vector<unsigned char> map(pages);
  EXPECT_EQ(::mincore(a.base(), pages * 4096, map.data()), 0);
  uint64_t n = 0;
  for (const unsigned char m : map) n += m & 1;
  return n * 4096;
}
std::vector<BlockId> range(BlockId first, BlockId end) {
  std::vector<BlockId> ids(end - first);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}
kernels::KvLayout layout(int head_dim, DType t = DType::bf16) { return {t, t, head_dim, 16}; }

TEST(KvArena, CommitsInBatchesAndCountsWhatTheKernelCounts) {
  KvArena a;
  ASSERT_TRUE(a.init(layout(64), 4096).ok());  // 4 KiB a block
  EXPECT_EQ(by_mincore(a, 4096), 0u);
  for (BlockId b = 0; b < 128; ++b) ASSERT_TRUE(a.take(std::span(&b, 1)).ok());
  EXPECT_EQ(a.memory().commit_calls, 2u);
  EXPECT_EQ(a.committed_bytes(), 128u * 4096);
  EXPECT_EQ(a.memory().spare_bytes, 0u);
  EXPECT_EQ(by_mincore(a, 4096), a.committed_bytes());
  ASSERT_TRUE(a.take(range(0, 128)).ok());  // again: nothing
  EXPECT_EQ(a.memory().commit_calls, 2u);
}

TEST(KvArena, BlocksSmallerThanAPageShareIt) {
  KvArena a;
  ASSERT_TRUE(a.init(layout(16), 256).ok());  // 1 KiB a block, four a page
  ASSERT_TRUE(a.take(range(0, 256)).ok());
  const BlockId most[] = {0, 1, 2, 4, 5, 6, 7};
  a.free(most);
  EXPECT_EQ(a.release(0, 1), 4096u);  // block 3 still holds page 0
  EXPECT_EQ(by_mincore(a, 256), a.committed_bytes());
  const BlockId last[] = {3};
  a.free(last);
  a.free(last);  // a second time changes nothing
  EXPECT_EQ(a.release(0, 1), 4096u);
  EXPECT_EQ(a.committed_bytes(), 62u * 4096);
}

TEST(KvArena, BlocksThatStraddlePages) {
  KvArena a;
  ASSERT_TRUE(a.init(layout(24), 64).ok());  // 1.5 KiB
  ASSERT_TRUE(a.take(range(0, 64)).ok());
  a.free(range(0, 3));  // 4.5 KiB: page 0, and a part of page 1
  EXPECT_EQ(a.release(0, 1), 4096u);
  a.free(range(3, 6));  // up to 9 KiB
  EXPECT_EQ(a.release(0, 1), 4096u);
  EXPECT_EQ(by_mincore(a, 64), a.committed_bytes());
}

TEST(KvArena, KeepsTheLowestPagesInReserve) {
  KvArena a;
  ASSERT_TRUE(a.init(layout(64), 1000).ok());
  ASSERT_TRUE(a.take(range(0, 1000)).ok());
  a.free(range(100, 900));
  EXPECT_EQ(a.release(800 * 4096, 1), 0u);           // all of it is the reserve
  EXPECT_EQ(a.release(300 * 4096, 501 * 4096), 0u);  // too little to bother
  EXPECT_EQ(a.release(300 * 4096, 500 * 4096), 500u * 4096);
  EXPECT_EQ(a.memory().release_calls, 1u);  // one run
  const uint64_t before = a.memory().commit_calls;
  ASSERT_TRUE(a.take(range(100, 400)).ok());  // the reserve: no system call
  EXPECT_EQ(a.memory().commit_calls, before);
  ASSERT_TRUE(a.take(range(400, 401)).ok());
  EXPECT_EQ(a.memory().commit_calls, before + 1);
  EXPECT_EQ(by_mincore(a, 1000), a.committed_bytes());
}

// What is written stays while its block is taken, whatever is released around it.
TEST(KvArena, RandomOperationsKeepContentsAndCounts) {
  constexpr uint32_t kBlocks = 600;
  KvArena a;
  ASSERT_TRUE(a.init(layout(40), kBlocks).ok());  // 2.5 KiB
  std::mt19937 rng(11);
  std::vector<int> holds(kBlocks, 0);  // 0: free
  const auto words = [&](BlockId b) {
    return reinterpret_cast<int*>(a.base() + b * a.block_bytes());
  };
  const size_t last = a.block_bytes() / sizeof(int) - 1;
  for (int step = 1; step < 3000; ++step) {
    const BlockId b = rng() % kBlocks, end = std::min<BlockId>(kBlocks, b + rng() % 30);
    if (rng() % 16 == 0) {
      a.release((rng() % 40) * 4096, 1);
      continue;
    }
    const bool take = rng() % 2 == 0;
    for (BlockId i = b; i < end; ++i) {
      if (holds[i] != 0) {
        ASSERT_EQ(words(i)[0], holds[i]);
        ASSERT_EQ(words(i)[last], holds[i]);
      }
      if (take == (holds[i] != 0)) continue;
      if (take) {
        ASSERT_TRUE(a.take(std::span(&i, 1)).ok());
        words(i)[0] = words(i)[last] = holds[i] = step;
      } else {
        a.free(std::span(&i, 1));
        holds[i] = 0;
      }
    }
    if (step % 64 == 0) {
      ASSERT_EQ(by_mincore(a, kBlocks), a.committed_bytes());
    }
  }
  for (BlockId i = 0; i < kBlocks; ++i) a.free(std::span(&i, 1));
  a.release(0, 1);
  EXPECT_EQ(a.committed_bytes(), 0u);
  EXPECT_EQ(by_mincore(a, kBlocks), 0u);
}

// Pages of 2 MiB come and go whole, and what stays keeps its contents.
TEST(KvArena, HugePagesComeAndGoWhole) {
  constexpr uint32_t kBlocks = 5 * 512 + 100;  // 4 KiB each: five pages and a part of one
  constexpr uint64_t kHuge = 2 << 20;
  KvArena a;
  ASSERT_TRUE(a.init(layout(64), kBlocks, /*huge_pages=*/true).ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.base()) % kHuge, 0u);
  ASSERT_TRUE(a.take(range(0, 1)).ok());
  EXPECT_EQ(a.committed_bytes(), kHuge);
  ASSERT_TRUE(a.take(range(0, kBlocks)).ok());
  EXPECT_EQ(a.committed_bytes(), 6 * kHuge);
  const auto fill = [&](BlockId b) { return static_cast<std::byte>(b * 37 % 251 + 1); };
  for (BlockId b = 0; b < kBlocks; ++b) std::fill_n(a.base() + b * 4096, 4096, fill(b));
  // Of page 1 all, of page 3 all but one block, of the last all.
  a.free(range(512, 1024));
  a.free(range(1536, 2047));
  a.free(range(2560, kBlocks));
  const uint64_t rss = resident_memory().total;
  EXPECT_EQ(a.memory().spare_bytes, 2 * kHuge);
  EXPECT_EQ(a.release(0, 1), 2 * kHuge);
  EXPECT_EQ(a.committed_bytes(), 4 * kHuge);
  EXPECT_LE(resident_memory().total + kHuge, rss);
  for (BlockId b = 0; b < 2560; ++b) {
    if (!a.is_taken(b)) continue;
    for (const size_t at : {0, 4095}) ASSERT_EQ(a.base()[b * 4096 + at], fill(b)) << b;
  }
  ASSERT_TRUE(a.take(range(512, 513)).ok());
  EXPECT_EQ(a.base()[512 * 4096], std::byte{0});
  EXPECT_EQ(a.committed_bytes(), 5 * kHuge);
}

// The process gets smaller and the machine gets larger, by what was released: scattered survivors
// give nothing, runs give all. Other processes move the machine's figure: the best of some tries.
TEST(KvArena, ReleasedMemoryLeavesTheProcessAndReturnsToTheMachine) {
  constexpr uint32_t kBlocks = 262144;  // 256 MiB of 1 KiB blocks
  KvArena a;
  ASSERT_TRUE(a.init(layout(16), kBlocks).ok());
  double machine = 0;
  for (int i = 0; i < 10 && machine < 0.95; ++i) {
    ASSERT_TRUE(a.take(range(0, kBlocks)).ok());
    std::vector<BlockId> scattered, rest;
    for (BlockId b = 0; b < kBlocks; ++b) {
      if (b % 4 != 1) scattered.push_back(b);
      if (b % 4 == 1 && b < kBlocks / 2) rest.push_back(b);
    }
    a.free(scattered);
    EXPECT_EQ(a.release(0, 1), 0u);  // one block in every page

    const uint64_t rss = resident_memory().total, available = available_memory();
    a.free(rest);
    const uint64_t given = a.release(0, 1);
    const uint64_t available_now = available_memory();
    EXPECT_EQ(given, uint64_t{kBlocks} / 2 * 1024);
    const uint64_t left = rss - std::min(rss, resident_memory().total);
    EXPECT_GE(static_cast<double>(left), 0.95 * static_cast<double>(given));
    machine = (static_cast<double>(available_now) - static_cast<double>(available)) /
              static_cast<double>(given);
    if (available == 0) machine = 1;  // /proc says nothing here
  }
  EXPECT_GE(machine, 0.95);
}

}  // namespace
}  // namespace pagefold::cpu
