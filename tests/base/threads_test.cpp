#include "base/threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace pagefold {
namespace {

TEST(ThreadPool, EveryThreadRunsOncePerCall) {
  for (int n : {1, 2, 3, 5}) {
    ThreadPool pool(n);
    std::vector<int> calls(n, 0);
    for (int i = 0; i < 2000; ++i) {
      pool.run([&](int t, int threads) {
        ASSERT_EQ(threads, n);
        ++calls[t];
      });
    }
    for (int c : calls) EXPECT_EQ(c, 2000);
  }
}

TEST(ThreadPool, WakesAfterASleep) {
  ThreadPool pool(3);
  for (int i = 0; i < 5; ++i) {
    // Longer than the spin: the workers are asleep, or on their way, when the next call comes.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    int sum[3] = {};
    pool.run([&](int t, int) { sum[t] = t + 1; });
    EXPECT_EQ(sum[0] + sum[1] + sum[2], 6);
  }
}

TEST(ThreadPool, SharesCoverEverythingOnce) {
  for (int64_t n : {0, 1, 7, 100}) {
    for (int threads : {1, 2, 3, 8}) {
      int64_t next = 0;
      for (int t = 0; t < threads; ++t) {
        const Range r = share_of(n, t, threads);
        EXPECT_EQ(r.begin, next);
        next = r.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

}  // namespace
}  // namespace pagefold
