// Sixteen floats in one register, and how cached keys and values are multiplied. Only for files
// compiled for AVX-512 (F, BW, DQ, VL, BF16): everything is local to the including file.
#pragma once

// g++ 12 warns about its own undefined vectors (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include "base/exp_poly.h"
#include "kernels/attention_parts.h"

#define PF_INLINE inline __attribute__((always_inline))

namespace pagefold::kernels {
namespace {

struct Vec {
  using F = __m512;

  static constexpr int kMaxQueries = 6;  // of a tile: 6 x 4 accumulators

  static PF_INLINE F zero() { return _mm512_setzero_ps(); }
  static PF_INLINE F set1(float v) { return _mm512_set1_ps(v); }
  static PF_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  static PF_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  // n: 8 or 16 values; the rest reads as zero.
  static PF_INLINE F load_n(const float* p, int n) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(n == 16 ? 0xffff : 0xff), p);
  }
  static PF_INLINE void store_n(float* p, F v, int n) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>(n == 16 ? 0xffff : 0xff), v);
  }
  static PF_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  static PF_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static PF_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static PF_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
  static PF_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  // b where either is NaN.
  static PF_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
  static PF_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
  // Of numbers >= 0; of a NaN and a number the NaN.
  static PF_INLINE F max_bits(F a, F b) {
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  static PF_INLINE F select(uint16_t mask, F yes, F no) {
    return _mm512_mask_mov_ps(no, mask, yes);
  }
  static PF_INLINE bool any_nan(F v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }
  static PF_INLINE float lane0(F v) { return _mm512_cvtss_f32(v); }

  static PF_INLINE float reduce_add(F v) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  static PF_INLINE float reduce_max(F v) {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }

  static PF_INLINE float reduce_max_bits(F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m256i a =
        _mm256_max_epu32(_mm512_castsi512_si256(bits), _mm512_extracti32x8_epi32(bits, 1));
    const __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i c = _mm_max_epu32(b, _mm_unpackhi_epi64(b, b));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epu32(c, _mm_shuffle_epi32(c, 1))));
  }

  // exp_poly.h, for x <= 0. NaN stays NaN: the clamp returns its second operand then.
  static PF_INLINE F exp(F x) {
    x = _mm512_max_ps(_mm512_set1_ps(kExpLowest), x);
    const F n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    F r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), r);
    F p = _mm512_set1_ps(kExp6);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp2));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
    return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), n);
  }

  // Round to nearest even; NaN stays NaN. Subnormals are kept, which vcvtneps2bf16 does not do.
  static PF_INLINE __m256i bf16_bits(F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
  }
  static PF_INLINE void store_bf16(uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bf16_bits(v));
  }
  static PF_INLINE void store_f16(uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  // Queries for bfloat16 keys as pairs of bfloat16, two bytes a dimension, and weights for bfloat16
  // values likewise, where vdpbf16ps is used; else the floats they are equal to.
  static constexpr bool kHasNarrowBf16 = true;
  static PF_INLINE void store_query_bf16(std::byte* p, F v, int n) {
    const __m256i bits = bf16_bits(v);
    if (n == 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bits);
    else
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(bits));
  }
  // Strip `strip` of the row `p`. Returns the weights as rounded.
  static PF_INLINE F store_weights_bf16(float* p, int strip, F v) {
    const __m256i bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p) + strip, bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static PF_INLINE F round_bf16(F v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16_bits(v)), 16));
  }
  // The same for weights: what store_weights_bf16 stores, subnormals flushed.
  static PF_INLINE F round_weights(F v) {
    const __m256i bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static PF_INLINE F load_f16(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // Whole numbers from -128 to 255.
  static PF_INLINE void store_bytes(uint8_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  }
  // To the nearest whole number, ties to even.
  static PF_INLINE F round(F v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

// Queries and weights for bfloat16 are pairs of bfloat16.
PF_INLINE bool narrow_bf16() { return Vec::kHasNarrowBf16 && !slow_dpbf16(); }
// From one prepared query to the next.
PF_INLINE size_t query_bytes(const KvLayout& layout) {
  return static_cast<size_t>(layout.head_dim) *
         (layout.k_dtype == DType::bf16 && narrow_bf16() ? 2 : 4);
}

PF_INLINE __m512i broadcast32(const void* p) {
  int bits;
  __builtin_memcpy(&bits, p, 4);
  return _mm512_set1_epi32(bits);
}

// The two bfloat16 of each 32-bit lane.
PF_INLINE __m512 low_bf16(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
PF_INLINE __m512 high_bf16(__m512i pairs) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, mask));
}

PF_INLINE __m512 load_half16(const std::byte* p, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}

// One step reads 64 bytes of a strip's keys. kDims: dimensions of a step. strips(): how many strips
// at once, so that the sums fit the registers.
struct KeysF32 {
  static constexpr int kDims = 1;
  static constexpr int kQueryBytes = 4;
  static constexpr int strips(int) { return 4; }
  using Keys = __m512;
  using Query = __m512;
  static PF_INLINE Keys load(const std::byte* p) { return _mm512_loadu_ps(p); }
  static PF_INLINE Query query(const std::byte* p) { return _mm512_castsi512_ps(broadcast32(p)); }
  static PF_INLINE __m512 dot(__m512 acc, Keys k, Query q) { return _mm512_fmadd_ps(k, q, acc); }
};

struct KeysF16 {
  static constexpr int kDims = 2;
  static constexpr int kQueryBytes = 8;
  static constexpr int strips(int queries) { return queries <= 4 ? 4 : 2; }
  struct Keys {
    __m512 a, b;
  };
  struct Query {
    __m512 a, b;
  };
  static PF_INLINE Keys load(const std::byte* p) {
    return {load_half16(p, 0xffff), load_half16(p + 32, 0xffff)};
  }
  static PF_INLINE Query query(const std::byte* p) {
    return {_mm512_castsi512_ps(broadcast32(p)), _mm512_castsi512_ps(broadcast32(p + 4))};
  }
  static PF_INLINE __m512 dot(__m512 acc, const Keys& k, const Query& q) {
    return _mm512_fmadd_ps(k.b, q.b, _mm512_fmadd_ps(k.a, q.a, acc));
  }
};

struct KeysBf16 {
  static constexpr int kDims = 2;
  static constexpr int kQueryBytes = 4;
  static constexpr int strips(int) { return 4; }
  using Keys = __m512i;
  using Query = __m512i;
  static PF_INLINE Keys load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static PF_INLINE Query query(const std::byte* p) { return broadcast32(p); }
  static PF_INLINE __m512 dot(__m512 acc, Keys k, Query q) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(k), reinterpret_cast<__m512bh>(q));
  }
};

// The same without vdpbf16ps: each half of a pair becomes a float.
struct KeysBf16Wide : KeysF16 {
  static PF_INLINE Keys load(const std::byte* p) {
    const __m512i x = _mm512_loadu_si512(p);
    return {low_bf16(x), high_bf16(x)};
  }
};

// One step reads kSlots slots of 16 (or 8: Half) dimensions. `live` has a bit a slot. regs(): how
// many times 16 dimensions are accumulated at once, so that a tile's sums fit the registers.
template <bool Half>
struct ValuesF32 {
  static constexpr int regs(int) { return 4; }
  static constexpr int kSlots = 1;
  static constexpr int kDimBytes = 4;     // between two dimensions
  static constexpr int kWeightBytes = 4;  // a slot
  using Values = __m512;
  using Weight = __m512;
  static PF_INLINE Values load(const std::byte* p) {
    return _mm512_maskz_loadu_ps(Half ? 0xff : 0xffff, p);
  }
  static PF_INLINE Values load_live(const std::byte* p, unsigned live) {
    return _mm512_maskz_loadu_ps(live & 1 ? (Half ? 0xff : 0xffff) : 0, p);
  }
  static PF_INLINE Weight weight(const std::byte* p) { return _mm512_castsi512_ps(broadcast32(p)); }
  static PF_INLINE __m512 dot(__m512 acc, Values v, Weight w) { return _mm512_fmadd_ps(v, w, acc); }
};

template <bool Half>
struct ValuesF16 : ValuesF32<Half> {
  static constexpr int kDimBytes = 2;
  static PF_INLINE __m512 load(const std::byte* p) { return load_half16(p, Half ? 0xff : 0xffff); }
  static PF_INLINE __m512 load_live(const std::byte* p, unsigned live) {
    return load_half16(p, live & 1 ? (Half ? 0xff : 0xffff) : 0);
  }
};

template <bool Half>
struct ValuesBf16 {
  static constexpr int regs(int) { return 4; }
  static constexpr int kSlots = 2;
  static constexpr int kDimBytes = 4;
  static constexpr int kWeightBytes = 2;
  using Values = __m512i;
  using Weight = __m512i;
  static PF_INLINE Values load(const std::byte* p) {
    return _mm512_maskz_loadu_epi32(Half ? 0xff : 0xffff, p);
  }
  static PF_INLINE Values load_live(const std::byte* p, unsigned live) {
    const unsigned slots = (live & 1 ? 0x55555555u : 0u) | (live & 2 ? 0xaaaaaaaau : 0u);
    return _mm512_maskz_loadu_epi16(Half ? slots & 0xffff : slots, p);
  }
  static PF_INLINE Weight weight(const std::byte* p) { return broadcast32(p); }
  static PF_INLINE __m512 dot(__m512 acc, Values v, Weight w) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(v), reinterpret_cast<__m512bh>(w));
  }
};

// Two slots a step, without vdpbf16ps.
template <bool Half>
struct ValuesBf16Wide {
  static constexpr int regs(int queries) { return queries <= 4 ? 4 : 2; }
  static constexpr int kSlots = 2;
  static constexpr int kDimBytes = 4;
  static constexpr int kWeightBytes = 4;
  struct Values {
    __m512 a, b;
  };
  struct Weight {
    __m512 a, b;
  };
  static PF_INLINE Values load(const std::byte* p) {
    const __m512i x = ValuesBf16<Half>::load(p);
    return {low_bf16(x), high_bf16(x)};
  }
  static PF_INLINE Values load_live(const std::byte* p, unsigned live) {
    const __m512i x = ValuesBf16<Half>::load_live(p, live);
    return {low_bf16(x), high_bf16(x)};
  }
  static PF_INLINE Weight weight(const std::byte* p) {
    return {_mm512_castsi512_ps(broadcast32(p)), _mm512_castsi512_ps(broadcast32(p + 4))};
  }
  static PF_INLINE __m512 dot(__m512 acc, const Values& v, const Weight& w) {
    return _mm512_fmadd_ps(v.b, w.b, _mm512_fmadd_ps(v.a, w.a, acc));
  }
};

}  // namespace
}  // namespace pagefold::kernels
