// Clocks, and what the machine's memory can do at most.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/threads.h"

namespace pagefold::bench {

double seconds();  // of the steady clock
// Processor time of all threads. On a machine that others use too, shares by it are the fair ones.
double cpu_seconds();

// The upper of the two in the middle; 0 of none.
inline double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// A rate by the clock and by processor time (of all threads, so per thread).
struct Rate {
  double wall = 0, cpu = 0;
};
template <class Work>
Rate median_rate(double amount, const Work& work, int repeat = 9) {
  std::vector<double> wall, cpu;
  for (int i = 0; i < repeat; ++i) {
    const double w = seconds(), c = cpu_seconds();
    work();
    wall.push_back(amount * 1e-9 / (seconds() - w));
    cpu.push_back(amount * 1e-9 / (cpu_seconds() - c));
  }
  return {median(wall), median(cpu)};
}

// Memory from the system, touched by the threads that use it: in small pages like the cache's
// arena, or in huge ones like weights.
enum class ArenaPages : uint8_t { small, huge };
class Arena {
 public:
  explicit Arena(size_t bytes, ArenaPages pages = ArenaPages::small);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

// A plain sequential read of the arena by all threads of the pool, each in `streams` streams (1,
// 4).
void read_arena(ThreadPool& pool, const Arena& arena, int streams = 4);
// Its GB/s: with as many streams as are faster.
Rate read_bandwidth(ThreadPool& pool, const Arena& arena);

}  // namespace pagefold::bench
