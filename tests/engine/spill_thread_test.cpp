// The thread beside the engine that writes and reads the spill file, and what becomes of its
// failures. Only the fake model: the thread sanitizer runs these.
#include "engine/spill_thread.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <semaphore>

#include "base/system.h"
#include "engine/engine_test_util.h"
#include "support/sanitizers.h"

namespace pagefold::testing {
namespace {

TEST(SpillThread, RunsTasksInOrderToTheLast) {
  std::vector<int> done;
  {
    SpillThread thread(100);
    for (int i = 0; i < 500; ++i) {
      thread.post(i % 3 == 0 ? 0 : 60, [&done, i] { done.push_back(i); });
    }
  }
  ASSERT_EQ(done.size(), 500u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
}

TEST(SpillThread, BuffersGoBackToTheOperatingSystem) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps what was freed";
  constexpr size_t kBytes = 1 << 20;
  const uint64_t before = resident_memory().anonymous;
  SpillThread thread(uint64_t{1} << 30);
  std::vector<std::unique_ptr<char[]>> between;
  // The first time the allocator maps such buffers, from then on it takes them from its heap.
  for (int round = 0; round < 2; ++round) {
    std::binary_semaphore all_held{0}, written{0};
    thread.post(0, [&] { all_held.acquire(); });
    for (int i = 0; i < 48; ++i) {
      std::shared_ptr<char[]> buffer(new char[kBytes]);
      std::fill_n(buffer.get(), kBytes, 'x');
      // What lies between the buffers and stays is why the allocator cannot shrink by itself.
      between.emplace_back(new char[2000]());
      thread.post(kBytes, [buffer = std::move(buffer)] {});
    }
    thread.post(0, [&] { written.release(); });
    EXPECT_GT(resident_memory().anonymous, before + 40 * kBytes);
    all_held.release();
    written.acquire();
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (resident_memory().anonymous > before + 8 * kBytes) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << resident_memory().anonymous - before;
    std::this_thread::yield();
  }
}

TEST(SpillThread, WhoHoldsTooMuchWaits) {
  std::atomic<int64_t> held{0}, most{0};
  std::binary_semaphore go{0};
  {
    SpillThread thread(100);
    thread.post(40, [&] { go.acquire(); });
    // Larger than the bound alone: only when nothing else is held.
    std::thread poster([&] {
      for (const int64_t bytes : {50, 300, 60, 40}) {
        thread.post(static_cast<uint64_t>(bytes), [&held, &most, bytes] {
          most = std::max<int64_t>(most, held += bytes);
          held -= bytes;
        });
      }
    });
    go.release();
    poster.join();
  }
  EXPECT_EQ(held, 0);
  EXPECT_EQ(most, 300);
}

TEST(SpillTransfer, GivesPiecesInOrderAndTheFirstReason) {
  SpillTransfer t;
  SpillTransfer::Piece piece;
  EXPECT_FALSE(t.take(piece));
  std::thread reader([&] {
    for (size_t i = 0; i < 50; ++i) t.give({i, 1, nullptr});
    t.fail("one");
    t.fail("two");
  });
  size_t next = 0;
  while (next < 50) {
    t.wait();
    while (t.take(piece)) EXPECT_EQ(piece.first, next++);
  }
  reader.join();
  t.wait();  // does not wait any more
  EXPECT_TRUE(t.failed());
  EXPECT_EQ(t.reason(), "one");
}

std::vector<Request> growing() {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 8; ++i) {
    requests.push_back(greedy(prompt_of(10 + static_cast<int64_t>(i), i), 140));
    requests.back().sampling.ignore_eos = true;
  }
  return requests;
}

EngineConfig tight() {
  EngineConfig config = small_config(4 * 11 * 3, 256);
  config.spill_dir = std::filesystem::temp_directory_path().string();
  config.spill_bytes = 1 << 20;
  return config;
}

// All at once, each with its solo answer.
EngineMetrics run_tight() {
  const std::vector<Request> requests = growing();
  std::vector<Answer> alone;
  {
    FakeModel model;
    const auto engine = start_engine(model, small_config());
    for (const Request& r : requests) alone.push_back(answer(*engine, r));
  }
  FakeModel model;
  const auto engine = start_engine(model, tight());
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<Generation>> running;
    for (const Request& r : requests) running.push_back(*engine->submit(r));
    for (size_t i = 0; i < running.size(); ++i) {
      const Answer got = drain(*running[i]);
      EXPECT_EQ(got.result.reason, FinishReason::length) << got.result.error;
      EXPECT_EQ(got.tokens, alone[i].tokens) << i;
    }
  }
  const EngineMetrics m = engine->metrics();
  EXPECT_EQ(m.preemptions, m.pauses_spilled + m.pauses_recomputed);
  EXPECT_EQ(m.spill_used, 0u);
  EXPECT_EQ(m.blocks_used, 0);
  return m;
}

TEST(SpillThread, PausesChangeNoAnswer) {
  const EngineMetrics m = run_tight();
  EXPECT_GT(m.pauses_spilled, 0u);
  EXPECT_EQ(m.pauses_recomputed, 0u);
}

// A disk that is full is noticed by the thread, steps later: such a request is computed again.
TEST(SpillThread, WhatCouldNotBeWrittenIsComputedAgain) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 12000;  // half a sequence
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const EngineMetrics m = run_tight();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_GT(m.pauses_recomputed, 0u);
}

// Clients that leave at any moment: before, while and after their caches are on their way.
TEST(SpillThread, CancelledOnesLeaveTheFile) {
  FakeModel model;
  std::vector<std::shared_ptr<Generation>> running;
  int64_t steps = 0;
  std::binary_semaphore all_submitted{0};
  model.before_forward = [&](const StepBatch&) {
    if (steps++ == 0) all_submitted.acquire();
    if (steps % 40 == 39) running[static_cast<size_t>(steps / 40) % running.size()]->cancel();
  };
  const auto engine = start_engine(model, tight());
  for (const Request& r : growing()) running.push_back(*engine->submit(r));
  for (const Request& r : growing()) running.push_back(*engine->submit(r));
  all_submitted.release();
  for (const auto& g : running) drain(*g);
  const EngineMetrics m = engine->metrics();
  EXPECT_GT(m.pauses_spilled, 0u);
  EXPECT_EQ(m.spill_used, 0u);
  EXPECT_EQ(m.blocks_used, 0);
}

}  // namespace
}  // namespace pagefold::testing
