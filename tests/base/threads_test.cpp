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

// A part is run once, by its worker or by the caller, also when workers sleep between calls or are
// held up in one.
TEST(ThreadPool, EveryPartRunsOnceWhoeverTakesIt) {
  ThreadPool pool(3);
  std::vector<int> calls(3, 0);
  const std::thread::id caller = std::this_thread::get_id();
  for (int i = 0; i < 3000; ++i) {
    pool.run([&](int t, int) {
      ++calls[static_cast<size_t>(t)];
      const bool held_up = t == 2 && i % 1000 == 0 && std::this_thread::get_id() != caller;
      if (t == 0) EXPECT_EQ(std::this_thread::get_id(), caller);
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::milliseconds(held_up ? 5 : 0);
      while (std::chrono::steady_clock::now() < end) {
      }
    });
  }
  for (int c : calls) EXPECT_EQ(c, 3000);
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
