// Clocks, memory and what the machine can do at most, for benchmarks of the attention kernels.
#pragma once

#include <benchmark/benchmark.h>
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "base/threads.h"

namespace pagefold::kernels {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processor time of all threads. On a machine that others use too, shares by it are the fair ones.
double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// A rate by the clock and by processor time (of all threads, so per thread).
struct Rate {
  double wall = 0, cpu = 0;
};
template <class Work>
Rate median_rate(double amount, const Work& work) {
  std::vector<double> wall, cpu;
  for (int i = 0; i < 9; ++i) {
    const double w = seconds(), c = cpu_seconds();
    work();
    wall.push_back(amount * 1e-9 / (seconds() - w));
    cpu.push_back(amount * 1e-9 / (cpu_seconds() - c));
  }
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  return {wall[4], cpu[4]};
}

// Memory from the system, small pages like the cache's arena, touched by the threads that use it.
class Arena {
 public:
  explicit Arena(size_t bytes) : bytes_(bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    data_ = static_cast<std::byte*>(p);
    madvise(data_, bytes_, MADV_NOHUGEPAGE);
  }
  ~Arena() { munmap(data_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

__attribute__((target("avx2"))) uint64_t read_all(const std::byte* p, size_t bytes) {
  // Four streams, fetched ahead: the fastest plain reader on this kind of machine.
  __m256i sum[4] = {};
  const size_t quarter = bytes / 4 / 4096 * 4096;
  for (size_t i = 0; i < quarter; i += 64) {
    for (size_t s = 0; s < 4; ++s) {
      const std::byte* at = p + s * quarter + i;
      _mm_prefetch(reinterpret_cast<const char*>(at) + 1024, _MM_HINT_T0);
      sum[s] = _mm256_add_epi64(sum[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
      sum[s] =
          _mm256_add_epi64(sum[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32)));
    }
  }
  const __m256i all =
      _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0) + _mm256_extract_epi64(all, 1) +
                               _mm256_extract_epi64(all, 2) + _mm256_extract_epi64(all, 3));
}

// GB/s of a plain sequential read of the arena by all threads of the pool.
Rate read_bandwidth(ThreadPool& pool, Arena& arena) {
  return median_rate(static_cast<double>(arena.bytes()), [&] {
    pool.run([&](int t, int n) {
      const Range r = share_of(static_cast<int64_t>(arena.bytes() / 4096), t, n);
      benchmark::DoNotOptimize(
          read_all(arena.data() + r.begin * 4096, static_cast<size_t>(r.end - r.begin) * 4096));
    });
  });
}

__attribute__((target("avx512f,avx512bf16"))) float dot_peak(int64_t steps) {
  // Twelve chains by name: an array would be spilled.
  const __m512bh one = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
  __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a,
         k = a, l = a;
  for (int64_t n = 0; n < steps; ++n) {
    a = _mm512_dpbf16_ps(a, one, one), b = _mm512_dpbf16_ps(b, one, one);
    c = _mm512_dpbf16_ps(c, one, one), d = _mm512_dpbf16_ps(d, one, one);
    e = _mm512_dpbf16_ps(e, one, one), f = _mm512_dpbf16_ps(f, one, one);
    g = _mm512_dpbf16_ps(g, one, one), h = _mm512_dpbf16_ps(h, one, one);
    i = _mm512_dpbf16_ps(i, one, one), j = _mm512_dpbf16_ps(j, one, one);
    k = _mm512_dpbf16_ps(k, one, one), l = _mm512_dpbf16_ps(l, one, one);
    asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f));
    asm volatile("" : "+v"(g), "+v"(h), "+v"(i), "+v"(j), "+v"(k), "+v"(l));
  }
  const __m512 s = _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)),
                                 _mm512_add_ps(_mm512_add_ps(e, f), _mm512_add_ps(g, h)));
  return _mm512_cvtss_f32(
      _mm512_add_ps(s, _mm512_add_ps(_mm512_add_ps(i, j), _mm512_add_ps(k, l))));
}

// GFLOP/s of vdpbf16ps on all threads of the pool.
Rate bf16_peak(ThreadPool& pool) {
  constexpr int64_t kSteps = 500'000;
  return median_rate(static_cast<double>(kSteps) * 12 * 64 * pool.size(), [&] {
    pool.run([&](int, int) { benchmark::DoNotOptimize(dot_peak(kSteps)); });
  });
}

}  // namespace
}  // namespace pagefold::kernels
