// How the AVX-512 kernels with float inputs read quantised weights: 16 of them (one input) out of a
// register that holds four inputs ("quad") of each of 16 outputs. Internal linkage, always inlined.
//   weight<Half, B>(quad)   input B of the quad; Half: low or high nibble, where values are nibbles
//   kHalfBytes              from the first 16 inputs of a block to the second
//   kScale                  what scales must be multiplied with
//   rare(quad), Rare        whether the quad needs the reader Rare, which is always right
// Float tables and shuffles replace mask-and-convert: fewer operations on the busy ports.
#pragma once

#include "kernels/simd_avx512.h"

namespace pagefold::kernels::avx512 {
namespace {

// 4-bit indices: vpermps takes an index modulo 16, so no mask is needed.
struct Nibbles {
  __m512 table;
  static constexpr size_t kHalfBytes = 0;  // both halves of a block share their bytes
  static constexpr float kScale = 1.0f;
  template <int Half, int B>
  PF_ISA_INLINE __m512 weight(__m512i quad) const {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(quad, B * 8 + Half * 4), table);
  }
};
struct W4 : Nibbles {
  using Rare = W4;
  PF_ISA_INLINE explicit W4(const MatmulArgs&)
      : Nibbles{_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)} {}
};
struct T4 : Nibbles {
  using Rare = T4;
  PF_ISA_INLINE explicit T4(const MatmulArgs& a) : Nibbles{_mm512_loadu_ps(a.weights->table)} {}
};

struct W8 {
  using Rare = W8;
  static constexpr size_t kHalfBytes = 256;
  static constexpr float kScale = 1.0f;
  __m512i magic;  // 2^23 as a float; its lowest byte is where an unsigned byte counts units
  PF_ISA_INLINE explicit W8(const MatmulArgs&) : magic(_mm512_set1_epi32(0x4b000000)) {}
  template <int Half, int B>
  PF_ISA_INLINE __m512 weight(__m512i quad) const {
    const __m512i pick = _mm512_broadcast_i32x4(
        _mm_setr_epi8(B, 0, 0, 0, 4 + B, 0, 0, 0, 8 + B, 0, 0, 0, 12 + B, 0, 0, 0));
    const __m512i f = _mm512_mask_shuffle_epi8(magic, 0x1111111111111111ull, quad, pick);
    return _mm512_sub_ps(_mm512_castsi512_ps(f), _mm512_set1_ps(0x1p23f + 128.0f));
  }
};

// e4m3 (packed_fp8.h). Two windows of the byte become sign, exponent and mantissa of a float that
// is 2^-8 of the value. That is wrong where the exponent is zero: zeros, subnormals, NaN.
struct Fp8 {
  static constexpr size_t kHalfBytes = 256;
  static constexpr float kScale = 256.0f;
  PF_ISA_INLINE explicit Fp8(const MatmulArgs&) {}
  PF_ISA_INLINE static bool rare(__m512i quad) {
    return _mm512_testn_epi8_mask(quad, _mm512_set1_epi8(0x47)) != 0;
  }
  // Byte 3: the code. Byte 2: the code one bit up. Byte 0: mantissa, a zero, sign: Rare's index.
  template <int B>
  PF_ISA_INLINE static __m512i windows(__m512i quad) {
    constexpr int p = B * 8, up = (p + 63) % 64;
    const __m512i at = _mm512_broadcast_i32x4(
        _mm_setr_epi8(p + 3, 0, static_cast<char>(up), p, p + 35, 0, p + 31, p + 32, p + 3, 0,
                      static_cast<char>(up), p, p + 35, 0, p + 31, p + 32));
    return _mm512_multishift_epi64_epi8(at, quad);
  }
  PF_ISA_INLINE static __m512i fields(__m512i windows) {  // (windows & mask) | exponent 0x70
    return _mm512_ternarylogic_epi32(windows, _mm512_set1_epi32(static_cast<int>(0x87f00000u)),
                                     _mm512_set1_epi32(0x38000000), 0xea);
  }
  template <int Half, int B>
  PF_ISA_INLINE __m512 weight(__m512i quad) const {
    return _mm512_castsi512_ps(fields(windows<B>(quad)));
  }
  struct Rare {
    static constexpr size_t kHalfBytes = 256;
    PF_ISA_INLINE explicit Rare(const Fp8&) {}
    template <int Half, int B>
    PF_ISA_INLINE __m512 weight(__m512i quad) const {
      const __m512i raw = windows<B>(quad);
      const __m512 f = _mm512_castsi512_ps(fields(raw));
      constexpr float u = 0x1p-17f;  // a subnormal's unit, 2^-9, times 2^-8
      const __m512 plus =
          _mm512_setr_ps(0, u, 2 * u, 3 * u, 4 * u, 5 * u, 6 * u, 7 * u, 0, 0, 0, 0, 0, 0, 0, 0);
      const __m512 minus = _mm512_setr_ps(__builtin_nanf(""), -u, -2 * u, -3 * u, -4 * u, -5 * u,
                                          -6 * u, -7 * u, 0, 0, 0, 0, 0, 0, 0, 0);
      const __mmask16 zero_exponent = _mm512_testn_epi32_mask(raw, _mm512_set1_epi32(0x07800000));
      return _mm512_mask_mov_ps(f, zero_exponent, _mm512_permutex2var_ps(plus, raw, minus));
    }
  };
};

// acc[t][r] += input B of the quads times x[r * ldx + B]; f(v, t) turns the weight of a tile into
// what is multiplied.
template <int T, int R, int Half, int B, class W, class F>
PF_ISA_INLINE void multiply_input(const W& w, const __m512i* quad, const F& f, const float* x,
                                  int64_t ldx, __m512 (*acc)[R]) {
  __m512 v[T];
  PF_UNROLL
  for (int t = 0; t < T; ++t) v[t] = f(w.template weight<Half, B>(quad[t]), t);
  PF_UNROLL
  for (int r = 0; r < R; ++r) {
    const __m512 factor = _mm512_set1_ps(x[r * ldx + B]);
    PF_UNROLL
    for (int t = 0; t < T; ++t) acc[t][r] = _mm512_fmadd_ps(v[t], factor, acc[t][r]);
  }
}
template <int T, int R, int Half, class W, class F>
PF_ISA_INLINE void multiply_quad(const W& w, const __m512i* quad, const F& f, const float* x,
                                 int64_t ldx, __m512 (*acc)[R]) {
  multiply_input<T, R, Half, 0>(w, quad, f, x, ldx, acc);
  multiply_input<T, R, Half, 1>(w, quad, f, x, ldx, acc);
  multiply_input<T, R, Half, 2>(w, quad, f, x, ldx, acc);
  multiply_input<T, R, Half, 3>(w, quad, f, x, ldx, acc);
}

// The 16 inputs of half a block, whose values begin at `values` of each tile.
template <int T, int R, int Half, class W, class F>
PF_ISA_INLINE void multiply_half(const W& w, const std::byte* const* tiles, size_t values,
                                 const F& f, const float* x, int64_t ldx, __m512 (*acc)[R]) {
  PF_UNROLL
  for (int j = 0; j < 4; ++j) {
    __m512i quad[T];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      quad[t] =
          _mm512_load_si512(tiles[t] + values + Half * W::kHalfBytes + static_cast<size_t>(j) * 64);
    }
    const float* at = x + Half * 16 + j * 4;
    if constexpr (!__is_same(W, typename W::Rare)) {
      bool rare = false;
      PF_UNROLL
      for (int t = 0; t < T; ++t) rare |= W::rare(quad[t]);
      if (__builtin_expect(rare, 0)) {
        multiply_quad<T, R, Half>(typename W::Rare(w), quad, f, at, ldx, acc);
        continue;
      }
    }
    multiply_quad<T, R, Half>(w, quad, f, at, ldx, acc);
  }
}

}  // namespace
}  // namespace pagefold::kernels::avx512
