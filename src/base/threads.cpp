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

// A part of a call is run by whoever takes it first: its worker, or the caller once it has run its
// own. So a worker that another process keeps from its core is not waited for, unless it had begun.
//
// A part's word is 4 x the call's number + its state. A worker that wakes late finds another
// call's.
enum PartState : uint32_t { kFree, kTaken, kDone };

struct alignas(64) Worker {
  std::atomic<uint32_t> part{0};
  std::atomic<int> sleeping_caller{0};
  std::thread thread;
};

struct ThreadPool::Shared {
  explicit Shared(int workers) : worker(static_cast<size_t>(workers)) {}
  alignas(64) std::atomic<uint32_t> generation{0};
  std::atomic<int> sleeping_workers{0};
  alignas(64) const ThreadFn* fn = nullptr;
  std::atomic<bool> stop{false};  // also read by a worker that wakes late
  std::vector<Worker> worker;

  void work(int t, int n_threads);
  void join(Worker& w, int t, int n_threads, uint32_t call);
};

void ThreadPool::Shared::work(int t, int n_threads) {
  Worker& me = worker[static_cast<size_t>(t - 1)];
  uint32_t seen = 0;
  while (true) {
    seen = await_change(generation, seen, sleeping_workers);
    if (stop.load(std::memory_order_relaxed)) return;
    uint32_t expected = 4 * seen + kFree;
    if (!me.part.compare_exchange_strong(expected, 4 * seen + kTaken, std::memory_order_acquire,
                                         std::memory_order_relaxed))
      continue;
    (*fn)(t, n_threads);
    me.part.store(4 * seen + kDone, std::memory_order_seq_cst);
    if (me.sleeping_caller.load(std::memory_order_seq_cst) > 0) futex_wake_all(me.part);
  }
}

// Until part t is done.
void ThreadPool::Shared::join(Worker& w, int t, int n_threads, uint32_t call) {
  uint32_t state = 4 * call + kFree;
  if (w.part.compare_exchange_strong(state, 4 * call + kTaken, std::memory_order_relaxed)) {
    (*fn)(t, n_threads);
    return;
  }
  while ((state = w.part.load(std::memory_order_acquire)) != 4 * call + kDone)
    await_change(w.part, state, w.sleeping_caller);
}

ThreadPool::ThreadPool(int n_threads)
    : n_threads_(n_threads), shared_(std::make_unique<Shared>(n_threads - 1)) {
  PF_CHECK(n_threads >= 1);
  Shared* s = shared_.get();
  for (int t = 1; t < n_threads; ++t) {
    s->worker[static_cast<size_t>(t - 1)].thread = std::thread([s, t, n_threads] {
      char name[16];
      std::snprintf(name, sizeof name, "pf-compute-%d", t);
      ::pthread_setname_np(::pthread_self(), name);
      s->work(t, n_threads);
    });
  }
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_relaxed);
  shared_->generation.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(shared_->generation);
  for (Worker& w : shared_->worker) w.thread.join();
}

void ThreadPool::run(ThreadFn fn) {
  if (n_threads_ == 1) {
    fn(0, 1);
    return;
  }
  Shared& s = *shared_;
  const uint32_t call = s.generation.load(std::memory_order_relaxed) + 1;
  s.fn = &fn;
  for (Worker& w : s.worker) w.part.store(4 * call + kFree, std::memory_order_release);
  s.generation.store(call, std::memory_order_seq_cst);
  if (s.sleeping_workers.load(std::memory_order_seq_cst) > 0) futex_wake_all(s.generation);
  fn(0, n_threads_);
  for (int t = 1; t < n_threads_; ++t)
    s.join(s.worker[static_cast<size_t>(t - 1)], t, n_threads_, call);
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
