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

// A worker that is late makes the caller wait, and is then left out: its parts still run once.
TEST(ThreadPool, LateWorkersAreLeftOutAndNothingIsLost) {
  ThreadPool pool(3);
  std::vector<int> calls(3, 0);
  const std::thread::id caller = std::this_thread::get_id();
  int slow = 0, by_caller = 0;
  for (int i = 0; i < 3000; ++i) {
    pool.run([&](int t, int) {
      ++calls[static_cast<size_t>(t)];
      if (t != 2) return;
      if (std::this_thread::get_id() == caller) {
        ++by_caller;
      } else if (slow < 3) {  // longer than a wait that counts
        ++slow;
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
        while (std::chrono::steady_clock::now() < end) {
        }
      }
    });
  }
  for (int c : calls) EXPECT_EQ(c, 3000);
  EXPECT_TRUE(slow == 0 || by_caller > 0);
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
