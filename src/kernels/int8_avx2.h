// What the AVX2 kernels with int8 inputs share. Internal linkage, always inlined.
// The integers are exact: vpmaddubsw saturates at 16 bits, so its operands are kept small enough.
#pragma once

#include "kernels/simd_avx2.h"

namespace pagefold::kernels::avx2 {
namespace {

// quad i of 8: 0..3 in the low nibbles, 4..7 in the high ones
PF_ISA_INLINE __m256i load_nibbles(const std::byte* values, int i) {
  const __m256i v = load_32(values + i % 4 * 64);
  return _mm256_and_si256(i < 4 ? v : _mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
}
// d += products of a quad of weights -128..127: |w| is the unsigned operand, the input takes w's
// sign, and two products stay below 32513.
PF_ISA_INLINE void add_signed(__m256i& d, __m256i w, __m256i magnitude, int x) {
  const __m256i v = _mm256_sign_epi8(_mm256_set1_epi32(x), w);
  const __m256i pairs = _mm256_maddubs_epi16(magnitude, v);
  d = _mm256_add_epi32(d, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// dot: products of N quads (4 inputs each) for 8 outputs and R rows: d[r] (int32).
// w4: 0..15 times -127..127, so 16 products of a 16-bit lane stay below 30481.
struct W4 {
  PF_ISA_INLINE explicit W4(const MatmulArgs&) {}
  template <int R, int N>
  PF_ISA_INLINE static void dot(const std::byte* values, int first, const int* x, int64_t ldx,
                                __m256i* d) {
    PF_UNROLL
    for (int r = 0; r < R; ++r) d[r] = _mm256_setzero_si256();
    PF_UNROLL
    for (int i = first; i < first + N; ++i) {
      const __m256i w = load_nibbles(values, i);
      PF_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m256i v = _mm256_set1_epi32(x[r * ldx + i]);
        d[r] = _mm256_add_epi16(d[r], _mm256_maddubs_epi16(w, v));
      }
    }
    PF_UNROLL
    for (int r = 0; r < R; ++r) d[r] = _mm256_madd_epi16(d[r], _mm256_set1_epi16(1));
  }
};
struct W8 {
  PF_ISA_INLINE explicit W8(const MatmulArgs&) {}
  template <int R, int N>
  PF_ISA_INLINE static void dot(const std::byte* values, int first, const int* x, int64_t ldx,
                                __m256i* d) {
    PF_UNROLL
    for (int r = 0; r < R; ++r) d[r] = _mm256_setzero_si256();
    PF_UNROLL
    for (int i = first; i < first + N; ++i) {
      const __m256i w =
          _mm256_xor_si256(load_32(values + i * 64), _mm256_set1_epi8(static_cast<char>(0x80)));
      const __m256i magnitude = _mm256_abs_epi8(w);
      PF_UNROLL
      for (int r = 0; r < R; ++r) add_signed(d[r], w, magnitude, x[r * ldx + i]);
    }
  }
};
struct T4 {
  __m256i table;  // int8, once in each 128-bit lane
  PF_ISA_INLINE explicit T4(const MatmulArgs& a) {
    const __m256i low = _mm256_cvtps_epi32(_mm256_loadu_ps(a.weights->table));
    const __m256i high = _mm256_cvtps_epi32(_mm256_loadu_ps(a.weights->table + 8));
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    const __m256i bytes = _mm256_packs_epi16(words, words);  // 0..7 | 0..7, 8..15 | 8..15
    table = _mm256_permute4x64_epi64(bytes, 0x88);
  }
  template <int R, int N>
  PF_ISA_INLINE void dot(const std::byte* values, int first, const int* x, int64_t ldx,
                         __m256i* d) const {
    PF_UNROLL
    for (int r = 0; r < R; ++r) d[r] = _mm256_setzero_si256();
    PF_UNROLL
    for (int i = first; i < first + N; ++i) {
      const __m256i w = _mm256_shuffle_epi8(table, load_nibbles(values, i));
      const __m256i magnitude = _mm256_abs_epi8(w);
      PF_UNROLL
      for (int r = 0; r < R; ++r) add_signed(d[r], w, magnitude, x[r * ldx + i]);
    }
  }
};

}  // namespace
}  // namespace pagefold::kernels::avx2
