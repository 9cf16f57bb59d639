#include <immintrin.h>

#include "bench/peaks.h"

namespace pagefold::bench {
namespace {

constexpr int kChains = 24;

// asm volatile: the loop must do its work though nobody reads the results.
#define PF_PEAK_LOOP(instruction)                                            \
  __m512i acc[kChains] = {};                                                 \
  const __m512i a = _mm512_set1_epi32(0), b = _mm512_set1_epi32(0);          \
  for (int64_t i = 0; i < loops; ++i) {                                      \
    _Pragma("GCC unroll 24") for (int j = 0; j < kChains; ++j) asm volatile( \
        instruction " %2, %1, %0" : "+v"(acc[j]) : "v"(a), "v"(b));          \
  }

}  // namespace

double peak_f32_avx512(int64_t loops) {
  PF_PEAK_LOOP("vfmadd231ps")
  return static_cast<double>(loops) * kChains * 32;
}
double peak_bf16_avx512(int64_t loops) {
  PF_PEAK_LOOP("vdpbf16ps")
  return static_cast<double>(loops) * kChains * 64;
}
double peak_int8_avx512(int64_t loops) {
  PF_PEAK_LOOP("vpdpbusd")
  return static_cast<double>(loops) * kChains * 128;
}

}  // namespace pagefold::bench
