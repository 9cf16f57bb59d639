#include <immintrin.h>

#include "bench/peaks.h"

namespace pagefold::bench {

// Twelve chains and two operands fit the sixteen registers.
double peak_f32_avx2(int64_t loops) {
  constexpr int kChains = 12;
  __m256 acc[kChains] = {};
  const __m256 a = _mm256_setzero_ps(), b = a;
  for (int64_t i = 0; i < loops; ++i) {
    _Pragma("GCC unroll 12") for (int j = 0; j < kChains; ++j) asm volatile(
        "vfmadd231ps %2, %1, %0" : "+x"(acc[j]) : "x"(a), "x"(b));
  }
  return static_cast<double>(loops) * kChains * 16;
}

// Products of bytes are added in pairs to 16 bits, then to 32 bits, then to the sum.
double peak_int8_avx2(int64_t loops) {
  constexpr int kChains = 6;
  __m256i acc[kChains] = {}, pair[kChains] = {};
  const __m256i a = _mm256_setzero_si256(), one = a;
  for (int64_t i = 0; i < loops; ++i) {
    _Pragma("GCC unroll 6") for (int j = 0; j < kChains; ++j) asm volatile(
        "vpmaddubsw %3, %2, %1\n\tvpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0" : "+x"(acc[j]),
        "+x"(pair[j]) : "x"(a), "x"(one));
  }
  return static_cast<double>(loops) * kChains * 64;
}

}  // namespace pagefold::bench
