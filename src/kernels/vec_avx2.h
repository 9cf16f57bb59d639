// Sixteen floats in two registers, and how cached keys and values are multiplied. Only for files
// compiled for AVX2, FMA and F16C: everything is local to the including file.
#pragma once

#include <immintrin.h>

#include "base/exp_poly.h"
#include "kernels/attention_parts.h"

#define PF_INLINE inline __attribute__((always_inline))

namespace pagefold::kernels {
namespace {

struct Floats {
  __m256 a, b;
};

PF_INLINE Floats fma16(Floats x, __m256 y, Floats z) {
  return {_mm256_fmadd_ps(x.a, y, z.a), _mm256_fmadd_ps(x.b, y, z.b)};
}

// All bits of the lanes whose bit is set.
PF_INLINE __m256 lanes8(unsigned bits) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), bit);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bit));
}

// exp_poly.h, for x <= 0. NaN stays NaN.
PF_INLINE __m256 exp8(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(kExpLowest), x);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2E)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2High), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Low), r);
  __m256 p = _mm256_set1_ps(kExp6);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp5));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp4));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp3));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp2));
  p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  // 2^n in two factors: n reaches below the least normal exponent.
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 f0 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const __m256 f1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  const __m256 y = _mm256_mul_ps(_mm256_mul_ps(p, f0), f1);
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

// Bfloat16 bits in the upper half of each lane. Round to nearest even; NaN stays NaN.
PF_INLINE __m256i round_bf16_bits(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_and_si256(_mm256_blendv_epi8(rounded, quiet, nan),
                          _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
}

// The lowest byte of each lane.
PF_INLINE void store_low_bytes(uint8_t* p, __m256i a, __m256i b) {
  const __m256i low = _mm256_set1_epi32(0xff);
  const __m256i words = _mm256_permute4x64_epi64(
      _mm256_packs_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low)), 0xd8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

struct Vec {
  using F = Floats;

  static constexpr int kMaxQueries = 3;  // of a tile

  static PF_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static PF_INLINE F set1(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
  static PF_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static PF_INLINE void store(float* p, F v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
  }
  // n: 8 or 16 values; the rest reads as zero.
  static PF_INLINE F load_n(const float* p, int n) {
    return {_mm256_loadu_ps(p), n == 16 ? _mm256_loadu_ps(p + 8) : _mm256_setzero_ps()};
  }
  static PF_INLINE void store_n(float* p, F v, int n) {
    _mm256_storeu_ps(p, v.a);
    if (n == 16) _mm256_storeu_ps(p + 8, v.b);
  }
  static PF_INLINE F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  static PF_INLINE F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  static PF_INLINE F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  static PF_INLINE F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static PF_INLINE F fma(F x, F y, F z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  // y where either is NaN.
  static PF_INLINE F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static PF_INLINE F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  // Of numbers >= 0; of a NaN and a number the NaN.
  static PF_INLINE __m256 max_bits8(__m256 x, __m256 y) {
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(x), _mm256_castps_si256(y)));
  }
  static PF_INLINE F max_bits(F x, F y) { return {max_bits8(x.a, y.a), max_bits8(x.b, y.b)}; }
  static PF_INLINE F select(uint16_t mask, F yes, F no) {
    return {_mm256_blendv_ps(no.a, yes.a, lanes8(mask)),
            _mm256_blendv_ps(no.b, yes.b, lanes8(static_cast<unsigned>(mask) >> 8))};
  }
  static PF_INLINE bool any_nan(F v) {
    return _mm256_movemask_ps(_mm256_cmp_ps(v.a, v.b, _CMP_UNORD_Q)) != 0;
  }
  static PF_INLINE float lane0(F v) { return _mm256_cvtss_f32(v.a); }

  static PF_INLINE float reduce_add(F v) {
    const __m256 x = _mm256_add_ps(v.a, v.b);
    const __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 z = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
  }
  static PF_INLINE float reduce_max(F v) {
    const __m256 x = _mm256_max_ps(v.a, v.b);
    const __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 z = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
  }

  static PF_INLINE float reduce_max_bits(F v) {
    const __m256i x = _mm256_castps_si256(max_bits8(v.a, v.b));
    const __m128i y = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    const __m128i z = _mm_max_epu32(y, _mm_unpackhi_epi64(y, y));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epu32(z, _mm_shuffle_epi32(z, 1))));
  }

  static PF_INLINE F exp(F x) { return {exp8(x.a), exp8(x.b)}; }

  static PF_INLINE void store_bf16(uint16_t* p, F v) {
    const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(round_bf16_bits(v.a), 16),
                                               _mm256_srli_epi32(round_bf16_bits(v.b), 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  static PF_INLINE void store_f16(uint16_t* p, F v) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.a, kNearest));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.b, kNearest));
  }

  // Queries and weights for bfloat16 are kept as the floats they are equal to.
  static constexpr bool kHasNarrowBf16 = false;
  static PF_INLINE void store_query_bf16(std::byte*, F, int) {}
  static PF_INLINE F store_weights_bf16(float*, int, F v) { return v; }
  static PF_INLINE F round_bf16(F v) {
    return {_mm256_castsi256_ps(round_bf16_bits(v.a)), _mm256_castsi256_ps(round_bf16_bits(v.b))};
  }
  static PF_INLINE F round_weights(F v) { return round_bf16(v); }
  static PF_INLINE F load_f16(const std::byte* p) {
    const auto* at = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
  }
  // Whole numbers from -128 to 255.
  static PF_INLINE void store_bytes(uint8_t* p, F v) {
    store_low_bytes(p, _mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b));
  }
  // To the nearest whole number, ties to even.
  static PF_INLINE F round(F v) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(v.a, kNearest), _mm256_round_ps(v.b, kNearest)};
  }
};

// Queries and weights for bfloat16 are pairs of bfloat16.
PF_INLINE bool narrow_bf16() { return Vec::kHasNarrowBf16 && !slow_dpbf16(); }
// From one prepared query to the next.
PF_INLINE size_t query_bytes(const KvLayout& layout) {
  return static_cast<size_t>(layout.head_dim) *
         (layout.k_dtype == DType::bf16 && narrow_bf16() ? 2 : 4);
}

PF_INLINE __m256 broadcast_float(const std::byte* p) {
  return _mm256_broadcast_ss(reinterpret_cast<const float*>(p));
}
PF_INLINE __m256 load_float8(const std::byte* p) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
}
PF_INLINE __m256 load_half8(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// The two bfloat16 of each 32-bit lane.
PF_INLINE __m256 low_bf16(__m256 pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
PF_INLINE __m256 high_bf16(__m256 pairs) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm256_and_ps(pairs, _mm256_castsi256_ps(mask));
}

// One step reads 64 bytes of a strip's keys. kDims: dimensions of a step.
struct KeysF32 {
  static constexpr int kDims = 1;
  static constexpr int kQueryBytes = 4;
  static constexpr int strips(int) { return 1; }
  using Keys = Floats;
  using Query = __m256;
  static PF_INLINE Keys load(const std::byte* p) { return {load_float8(p), load_float8(p + 32)}; }
  static PF_INLINE Query query(const std::byte* p) { return broadcast_float(p); }
  static PF_INLINE Floats dot(Floats acc, Keys k, Query q) { return fma16(k, q, acc); }
};

struct PairQuery {
  __m256 a, b;
};

struct KeysF16 {
  static constexpr int kDims = 2;
  static constexpr int kQueryBytes = 8;
  static constexpr int strips(int) { return 1; }
  struct Keys {
    Floats a, b;
  };
  using Query = PairQuery;
  static PF_INLINE Keys load(const std::byte* p) {
    return {{load_half8(p), load_half8(p + 16)}, {load_half8(p + 32), load_half8(p + 48)}};
  }
  static PF_INLINE Query query(const std::byte* p) {
    return {broadcast_float(p), broadcast_float(p + 4)};
  }
  static PF_INLINE Floats dot(Floats acc, const Keys& k, const Query& q) {
    return fma16(k.b, q.b, fma16(k.a, q.a, acc));
  }
};

struct KeysBf16 : KeysF16 {
  static PF_INLINE Keys load(const std::byte* p) {
    const __m256 x = load_float8(p), y = load_float8(p + 32);
    return {{low_bf16(x), low_bf16(y)}, {high_bf16(x), high_bf16(y)}};
  }
};

// One step reads kSlots slots of 16 (or 8: Half) dimensions. `live` has a bit a slot. regs(): how
// many times 16 dimensions are accumulated at once, so that a tile's sums fit the registers.
template <bool Half>
struct ValuesF32 {
  static constexpr int regs(int) { return 2; }
  static constexpr int kSlots = 1;
  static constexpr int kDimBytes = 4;     // between two dimensions
  static constexpr int kWeightBytes = 4;  // a slot
  using Values = Floats;
  using Weight = __m256;
  static PF_INLINE Values load(const std::byte* p) {
    return {load_float8(p), Half ? _mm256_setzero_ps() : load_float8(p + 32)};
  }
  static PF_INLINE Values load_live(const std::byte* p, unsigned live) {
    return live & 1 ? load(p) : Vec::zero();
  }
  static PF_INLINE Weight weight(const std::byte* p) { return broadcast_float(p); }
  static PF_INLINE Floats dot(Floats acc, Values v, Weight w) { return fma16(v, w, acc); }
};

template <bool Half>
struct ValuesF16 : ValuesF32<Half> {
  static constexpr int kDimBytes = 2;
  static PF_INLINE Floats load(const std::byte* p) {
    return {load_half8(p), Half ? _mm256_setzero_ps() : load_half8(p + 16)};
  }
  static PF_INLINE Floats load_live(const std::byte* p, unsigned live) {
    return live & 1 ? load(p) : Vec::zero();
  }
};

template <bool Half>
struct ValuesBf16 {
  static constexpr int regs(int) { return 1; }
  static constexpr int kSlots = 2;
  static constexpr int kDimBytes = 4;
  static constexpr int kWeightBytes = 4;
  struct Values {
    Floats a, b;
  };
  using Weight = PairQuery;
  static PF_INLINE Values load(const std::byte* p) {
    const __m256 x = load_float8(p), y = Half ? _mm256_setzero_ps() : load_float8(p + 32);
    return {{low_bf16(x), low_bf16(y)}, {high_bf16(x), high_bf16(y)}};
  }
  static PF_INLINE Values load_live(const std::byte* p, unsigned live) {
    const Values v = load(p);
    return {live & 1 ? v.a : Vec::zero(), live & 2 ? v.b : Vec::zero()};
  }
  static PF_INLINE Weight weight(const std::byte* p) {
    return {broadcast_float(p), broadcast_float(p + 4)};
  }
  static PF_INLINE Floats dot(Floats acc, const Values& v, const Weight& w) {
    return fma16(v.b, w.b, fma16(v.a, w.a, acc));
  }
};

}  // namespace
}  // namespace pagefold::kernels
