// How the AVX2 kernels with float inputs read quantised weights: 8 of them (one input) out of a
// register that holds four inputs ("quad") of each of 8 outputs. Internal linkage, always inlined.
//   weight<Half, B>(quad)   input B of the quad; Half: low or high nibble, where values are nibbles
//   kHalfBytes              from the first 16 inputs of a block to the second
//   kScale                  what scales must be multiplied with
//   rare(quad), Rare        whether the quad needs the reader Rare, which is always right
#pragma once

#include "kernels/simd_avx2.h"

namespace pagefold::kernels::avx2 {
namespace {

// Byte B of each 32-bit lane, zero-extended.
template <int B>
PF_ISA_INLINE __m256i pick_byte(__m256i quad) {
  const __m256i pick =
      _mm256_setr_epi8(B, -1, -1, -1, 4 + B, -1, -1, -1, 8 + B, -1, -1, -1, 12 + B, -1, -1, -1, B,
                       -1, -1, -1, 4 + B, -1, -1, -1, 8 + B, -1, -1, -1, 12 + B, -1, -1, -1);
  return _mm256_shuffle_epi8(quad, pick);
}

struct W4 {
  using Rare = W4;
  static constexpr int kHalfBytes = 0;  // both halves of a block share their bytes
  static constexpr float kScale = 1.0f;
  PF_ISA_INLINE explicit W4(const MatmulArgs&) {}
  template <int Half, int B>
  PF_ISA_INLINE static __m256 weight(__m256i quad) {
    const __m256i nibbles =
        _mm256_and_si256(Half == 0 ? quad : _mm256_srli_epi16(quad, 4), _mm256_set1_epi8(15));
    return _mm256_cvtepi32_ps(pick_byte<B>(nibbles));
  }
};
struct T4 {
  using Rare = T4;
  static constexpr int kHalfBytes = 0;
  static constexpr float kScale = 1.0f;
  __m256 low, high;  // vpermps takes an index modulo 8
  PF_ISA_INLINE explicit T4(const MatmulArgs& a)
      : low(_mm256_loadu_ps(a.weights->table)), high(_mm256_loadu_ps(a.weights->table + 8)) {}
  template <int Half, int B>
  PF_ISA_INLINE __m256 weight(__m256i quad) const {
    constexpr int shift = B * 8 + Half * 4;
    const __m256i index = _mm256_srli_epi32(quad, shift);
    const __m256 in_high = _mm256_castsi256_ps(_mm256_slli_epi32(quad, 28 - shift));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index),
                            _mm256_permutevar8x32_ps(high, index), in_high);
  }
};
struct W8 {
  using Rare = W8;
  static constexpr int kHalfBytes = 256;
  static constexpr float kScale = 1.0f;
  PF_ISA_INLINE explicit W8(const MatmulArgs&) {}
  template <int Half, int B>
  PF_ISA_INLINE static __m256 weight(__m256i quad) {
    return _mm256_sub_ps(_mm256_cvtepi32_ps(pick_byte<B>(quad)), _mm256_set1_ps(128.0f));
  }
};

// e4m3 (packed_fp8.h): sign, exponent and mantissa moved to where a float has them, which gives
// 2^-8 of the value. That is wrong where the exponent is zero: zeros, subnormals, NaN.
struct Fp8 {
  static constexpr int kHalfBytes = 256;
  static constexpr float kScale = 256.0f;
  PF_ISA_INLINE explicit Fp8(const MatmulArgs&) {}
  PF_ISA_INLINE static bool rare(__m256i quad) {
    const __m256i exponent = _mm256_and_si256(quad, _mm256_set1_epi8(0x47));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(exponent, _mm256_setzero_si256())) != 0;
  }
  // The upper halves of the floats of two codes, each in the upper byte of its 16 bits.
  PF_ISA_INLINE static __m256i upper_halves(__m256i codes) {
    const __m256i low = _mm256_and_si256(_mm256_srli_epi16(codes, 7), _mm256_set1_epi16(0x00f0));
    const __m256i high = _mm256_and_si256(codes, _mm256_set1_epi16(static_cast<int16_t>(0x8700)));
    return _mm256_or_si256(_mm256_or_si256(low, high), _mm256_set1_epi16(0x3800));
  }
  template <int Half, int B>
  PF_ISA_INLINE static __m256 weight(__m256i quad) {
    const __m256i two = upper_halves(B % 2 == 1 ? quad : _mm256_slli_epi16(quad, 8));
    return _mm256_castsi256_ps(
        B < 2 ? _mm256_slli_epi32(two, 16)
              : _mm256_and_si256(two, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  struct Rare {
    static constexpr int kHalfBytes = 256;
    PF_ISA_INLINE explicit Rare(const Fp8&) {}
    template <int Half, int B>
    PF_ISA_INLINE static __m256 weight(__m256i quad) {
      const __m256 value = Fp8::weight<Half, B>(quad);
      const __m256i f = _mm256_castps_si256(value);
      const __m256i zero_exponent = _mm256_cmpeq_epi32(
          _mm256_and_si256(f, _mm256_set1_epi32(0x07800000)), _mm256_setzero_si256());
      const __m256i mantissa = _mm256_and_si256(_mm256_srli_epi32(f, 20), _mm256_set1_epi32(7));
      // Units of 2^-9, times 2^-8; the packed byte of a negative zero is NaN.
      __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(mantissa), _mm256_set1_ps(0x1p-17f));
      small = _mm256_or_ps(small, _mm256_and_ps(value, _mm256_set1_ps(-0.0f)));
      const __m256i nan =
          _mm256_cmpeq_epi32(_mm256_castps_si256(small), _mm256_set1_epi32(INT32_MIN));
      small = _mm256_or_ps(small, _mm256_castsi256_ps(nan));
      return _mm256_blendv_ps(value, small, _mm256_castsi256_ps(zero_exponent));
    }
  };
};

// acc[t][r][half of the tile] += input B of the quads times x[r * ldx + B]; f(v, t, half) turns the
// weight into what is multiplied.
template <int T, int R, int Half, int B, class W, class F>
PF_ISA_INLINE void multiply_input(const W& w, const __m256i (*quad)[2], const F& f, const float* x,
                                  int64_t ldx, __m256 (*acc)[R][2]) {
  __m256 v[T][2];
  PF_UNROLL
  for (int t = 0; t < T; ++t) {
    PF_UNROLL
    for (int h = 0; h < 2; ++h) v[t][h] = f(w.template weight<Half, B>(quad[t][h]), t, h);
  }
  PF_UNROLL
  for (int r = 0; r < R; ++r) {
    const __m256 factor = _mm256_set1_ps(x[r * ldx + B]);
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      PF_UNROLL
      for (int h = 0; h < 2; ++h) acc[t][r][h] = _mm256_fmadd_ps(v[t][h], factor, acc[t][r][h]);
    }
  }
}
template <int T, int R, int Half, class W, class F>
PF_ISA_INLINE void multiply_quad(const W& w, const __m256i (*quad)[2], const F& f, const float* x,
                                 int64_t ldx, __m256 (*acc)[R][2]) {
  multiply_input<T, R, Half, 0>(w, quad, f, x, ldx, acc);
  multiply_input<T, R, Half, 1>(w, quad, f, x, ldx, acc);
  multiply_input<T, R, Half, 2>(w, quad, f, x, ldx, acc);
  multiply_input<T, R, Half, 3>(w, quad, f, x, ldx, acc);
}

// The 16 inputs of half a block, whose values begin at `values` of each tile.
template <int T, int R, int Half, class W, class F>
PF_ISA_INLINE void multiply_half(const W& w, const std::byte* const* tiles, size_t values,
                                 const F& f, const float* x, int64_t ldx, __m256 (*acc)[R][2]) {
  PF_UNROLL
  for (int j = 0; j < 4; ++j) {
    __m256i quad[T][2];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      const std::byte* at = tiles[t] + values + Half * W::kHalfBytes + j * 64;
      quad[t][0] = load_32(at);
      quad[t][1] = load_32(at + 32);
    }
    const float* xj = x + Half * 16 + j * 4;
    if constexpr (!__is_same(W, typename W::Rare)) {
      bool rare = false;
      PF_UNROLL
      for (int t = 0; t < T; ++t) rare |= W::rare(quad[t][0]) | W::rare(quad[t][1]);
      if (__builtin_expect(rare, 0)) {
        multiply_quad<T, R, Half>(typename W::Rare(w), quad, f, xj, ldx, acc);
        continue;
      }
    }
    multiply_quad<T, R, Half>(w, quad, f, xj, ldx, acc);
  }
}

}  // namespace
}  // namespace pagefold::kernels::avx2
