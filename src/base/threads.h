// The compute pool: fork/join over a fixed set of threads, the caller being number 0.
// Workers spin briefly, then sleep on a futex, so that an idle server costs nothing and a busy step
// pays a fraction of a microsecond a join. Results never depend on the number of threads: callers
// split work into units whose values are independent of who computes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace pagefold {

// A non-owning reference to `void(int thread, int n_threads)`; valid for the duration of the call.
class ThreadFn {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, ThreadFn>>>
  ThreadFn(F&& f)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* o, int t, int n) { (*static_cast<std::remove_reference_t<F>*>(o))(t, n); }) {
  }
  void operator()(int thread, int n) const { call_(object_, thread, n); }

 private:
  void* object_;
  void (*call_)(void*, int, int);
};

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);  // >= 1; 1 runs everything on the caller
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return n_threads_; }
  // Calls fn(0..n-1, n), in parallel as far as cores are free, and returns when all are done. A
  // call may run on the caller's thread after another, so none may wait for one with a higher
  // number. Not re-entrant; one caller at a time.
  void run(ThreadFn fn);

 private:
  struct Shared;
  int n_threads_;
  std::unique_ptr<Shared> shared_;
};

// A non-owning reference to `void(int64_t unit)`; valid for the duration of the call.
class UnitFn {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, UnitFn>>>
  UnitFn(F&& f)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* o, int64_t i) { (*static_cast<std::remove_reference_t<F>*>(o))(i); }) {}
  void operator()(int64_t unit) const { call_(object_, unit); }

 private:
  void* object_;
  void (*call_)(void*, int64_t);
};
// Calls fn(i) for every i in [0, n), in any order and perhaps on several threads at once.
using ForEachUnit = std::function<void(int64_t n, UnitFn fn)>;

// The contiguous share [begin, end) of `n` units for thread t of `threads`.
struct Range {
  int64_t begin, end;
};
constexpr Range share_of(int64_t n, int t, int threads) {
  return {n * t / threads, n * (t + 1) / threads};
}

// Cores this process may use (affinity and cgroup quota respected), at least 1.
int usable_cores();

}  // namespace pagefold
