// Clocks, memory and what the machine can do at most, for benchmarks of the attention kernels.
#pragma once

#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <cstdint>

#include "base/threads.h"
#include "bench/bandwidth.h"

namespace pagefold::kernels {
namespace {

using bench::Arena;
using bench::cpu_seconds;
using bench::median_rate;
using bench::Rate;
using bench::read_bandwidth;
using bench::seconds;

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
