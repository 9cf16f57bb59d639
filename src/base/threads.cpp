#include "base/threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/check.h"

namespace pagefold {
namespace {

// About 20 us of pauses: longer than the gap between two ops of a step, far shorter than a
// scheduling quantum.
constexpr int kSpins = 2000;

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
            nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
            nullptr, 0);
}

// Waits until word != old; `sleepers` lets the waker skip the system call when nobody sleeps.
uint32_t await_change(std::atomic<uint32_t>& word, uint32_t old, std::atomic<int>& sleepers) {
  for (int i = 0; i < kSpins; ++i) {
    const uint32_t now = word.load(std::memory_order_acquire);
    if (now != old) return now;
    __builtin_ia32_pause();
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  uint32_t now;
  while ((now = word.load(std::memory_order_seq_cst)) == old) futex_wait(word, old);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
  return now;
}

}  // namespace

struct ThreadPool::Shared {
  alignas(64) std::atomic<uint32_t> generation{0};
  std::atomic<int> sleeping_workers{0};
  alignas(64) std::atomic<uint32_t> done{0};  // counts finished workers, over all generations
  std::atomic<int> sleeping_caller{0};
  alignas(64) const ThreadFn* fn = nullptr;
  bool stop = false;
  std::vector<std::thread> workers;
};

ThreadPool::ThreadPool(int n_threads) : n_threads_(n_threads), shared_(std::make_unique<Shared>()) {
  PF_CHECK(n_threads >= 1);
  Shared* s = shared_.get();
  for (int t = 1; t < n_threads; ++t) {
    s->workers.emplace_back([s, t, n_threads] {
      char name[16];
      std::snprintf(name, sizeof name, "pf-compute-%d", t);
      ::pthread_setname_np(::pthread_self(), name);
      uint32_t seen = 0;
      while (true) {
        seen = await_change(s->generation, seen, s->sleeping_workers);
        if (s->stop) return;
        (*s->fn)(t, n_threads);
        s->done.fetch_add(1, std::memory_order_seq_cst);
        if (s->sleeping_caller.load(std::memory_order_seq_cst) > 0) futex_wake_all(s->done);
      }
    });
  }
}

ThreadPool::~ThreadPool() {
  shared_->stop = true;
  shared_->generation.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(shared_->generation);
  for (auto& w : shared_->workers) w.join();
}

void ThreadPool::run(ThreadFn fn) {
  if (n_threads_ == 1) {
    fn(0, 1);
    return;
  }
  Shared& s = *shared_;
  s.fn = &fn;
  uint32_t finished = s.done.load(std::memory_order_relaxed);
  const uint32_t target = finished + static_cast<uint32_t>(n_threads_ - 1);
  s.generation.fetch_add(1, std::memory_order_seq_cst);
  if (s.sleeping_workers.load(std::memory_order_seq_cst) > 0) futex_wake_all(s.generation);
  fn(0, n_threads_);
  while ((finished = s.done.load(std::memory_order_acquire)) != target) {
    await_change(s.done, finished, s.sleeping_caller);
  }
}

int usable_cores() {
  cpu_set_t set;
  int cores = 1;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  if (FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "re")) {
    double quota = 0, period = 0;
    if (std::fscanf(f, "%lf %lf", &quota, &period) == 2 && period > 0) {
      cores = std::min(cores, static_cast<int>(std::ceil(quota / period)));
    }
    std::fclose(f);
  }
  return std::max(cores, 1);
}

}  // namespace pagefold
