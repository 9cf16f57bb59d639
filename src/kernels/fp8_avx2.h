// Decoding fp8 by way of float16: e5m2 is its upper byte; the bits of e4m3 are a float16 256 times
// smaller, subnormals included, and only NaN needs care. Include after vec_avx2.h.
#pragma once

#include "kernels/attention_parts.h"

namespace pagefold::kernels {
namespace {

// Lane i of v[2p + b] is byte 16c + 8p + 2(i % 4) + b of the 64, c = i / 4.
struct Decoded {
  Floats v[4];
};

struct EightOfFour {
  __m256 v[4];
};

template <const Fp8Table* kTable>
PF_INLINE __m256i fp8_halves(__m256i upper, __m256i nan) {
  if constexpr (kTable == &kE5m2Table) return upper;
  const __m256i moved =
      _mm256_and_si256(_mm256_srai_epi16(upper, 1), _mm256_set1_epi16(static_cast<short>(0xbf80)));
  return _mm256_or_si256(moved, _mm256_and_si256(nan, _mm256_set1_epi16(0x7c00)));
}

template <const Fp8Table* kTable>
PF_INLINE __m256 half_floats(__m128i x) {
  const __m256 v = _mm256_cvtph_ps(x);
  if constexpr (kTable == &kE5m2Table) return v;
  return _mm256_mul_ps(v, _mm256_set1_ps(256.0f));
}

// 32 bytes: eight lanes.
template <const Fp8Table* kTable>
PF_INLINE EightOfFour decode_eight(__m256i x) {
  const __m256i by_v = _mm256_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15, 0, 2,
                                        4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m256i lanes = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  x = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(x, by_v), lanes);
  const __m256i nan =
      _mm256_cmpeq_epi8(_mm256_or_si256(x, _mm256_set1_epi8(-128)), _mm256_set1_epi8(-1));
  const __m256i zero = _mm256_setzero_si256();
  const __m256i a =
      fp8_halves<kTable>(_mm256_unpacklo_epi8(zero, x), _mm256_unpacklo_epi8(zero, nan));
  const __m256i b =
      fp8_halves<kTable>(_mm256_unpackhi_epi8(zero, x), _mm256_unpackhi_epi8(zero, nan));
  return {{half_floats<kTable>(_mm256_castsi256_si128(a)),
           half_floats<kTable>(_mm256_castsi256_si128(b)),
           half_floats<kTable>(_mm256_extracti128_si256(a, 1)),
           half_floats<kTable>(_mm256_extracti128_si256(b, 1))}};
}

template <const Fp8Table* kTable>
PF_INLINE Decoded decode_fp8(__m256i x, __m256i y) {
  const EightOfFour a = decode_eight<kTable>(x), b = decode_eight<kTable>(y);
  return {{{a.v[0], b.v[0]}, {a.v[1], b.v[1]}, {a.v[2], b.v[2]}, {a.v[3], b.v[3]}}};
}

PF_INLINE __m256i load_bytes(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// The codes of eight numbers, by the steps of base/fp8.h, a lane each.
template <int kMantissa, int kBias, int kLargest>
PF_INLINE __m256i encode_eight(__m256 x, unsigned* saturated) {
  constexpr int kDropped = 23 - kMantissa;
  const __m256i magic = _mm256_set1_epi32((128 - kBias - kMantissa + 23) << 23);
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i abs = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(abs, kDropped), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_add_epi32(abs, _mm256_add_epi32(odd, _mm256_set1_epi32((1 << (kDropped - 1)) - 1)));
  const __m256i normal = _mm256_sub_epi32(_mm256_srli_epi32(rounded, kDropped),
                                          _mm256_set1_epi32((127 - kBias) << kMantissa));
  const __m256i small = _mm256_sub_epi32(
      _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(abs), _mm256_castsi256_ps(magic))),
      magic);
  const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32((128 - kBias) << 23), abs);
  const __m256i is_nan = _mm256_cmpgt_epi32(abs, _mm256_set1_epi32(0x7f800000));
  const __m256i largest = _mm256_set1_epi32(kLargest);
  __m256i code = _mm256_blendv_epi8(normal, small, is_small);
  const __m256i beyond = _mm256_andnot_si256(is_nan, _mm256_cmpgt_epi32(code, largest));
  *saturated += static_cast<unsigned>(
      __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(beyond)))));
  code = _mm256_blendv_epi8(_mm256_min_epi32(code, largest), _mm256_set1_epi32(0x7f), is_nan);
  return _mm256_or_si256(code,
                         _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
}

// Returns how many of the 16 saturated.
template <int kMantissa, int kBias, int kLargest>
PF_INLINE unsigned encode_fp8(Floats x, uint8_t* out) {
  unsigned saturated = 0;
  const __m256i a = encode_eight<kMantissa, kBias, kLargest>(x.a, &saturated);
  const __m256i b = encode_eight<kMantissa, kBias, kLargest>(x.b, &saturated);
  store_low_bytes(out, a, b);
  return saturated;
}

struct FourFloats {
  __m256 v[4];
};
PF_INLINE FourFloats broadcast_four(const std::byte* p) {
  return {{broadcast_float(p), broadcast_float(p + 4), broadcast_float(p + 8),
           broadcast_float(p + 12)}};
}
PF_INLINE Floats dot_four(Floats acc, const Decoded& x, const FourFloats& y) {
  acc = fma16(x.v[0], y.v[0], acc);
  acc = fma16(x.v[1], y.v[1], acc);
  acc = fma16(x.v[2], y.v[2], acc);
  return fma16(x.v[3], y.v[3], acc);
}

template <const Fp8Table* kTable>
struct KeysFp8 {
  static constexpr int kDims = 4;
  static constexpr int kQueryBytes = 16;
  static constexpr int strips(int) { return 1; }
  using Keys = Decoded;
  using Query = FourFloats;
  static PF_INLINE Keys load(const std::byte* p) {
    return decode_fp8<kTable>(load_bytes(p), load_bytes(p + 32));
  }
  static PF_INLINE Query query(const std::byte* p) { return broadcast_four(p); }
  static PF_INLINE Floats dot(Floats acc, const Keys& k, const Query& q) {
    return dot_four(acc, k, q);
  }
};

template <const Fp8Table* kTable>
struct Fp8Values {
  template <bool Half>
  struct Of {
    static constexpr int regs(int) { return 1; }
    static constexpr int kSlots = 4;
    static constexpr int kDimBytes = 4;
    static constexpr int kWeightBytes = 4;
    using Values = Decoded;
    using Weight = FourFloats;
    static PF_INLINE __m256i second(const std::byte* p) {
      return Half ? _mm256_setzero_si256() : load_bytes(p + 32);
    }
    static PF_INLINE Values load(const std::byte* p) {
      return decode_fp8<kTable>(load_bytes(p), second(p));
    }
    static PF_INLINE Values load_live(const std::byte* p, unsigned live) {
      const auto pair = [](unsigned two) {
        return static_cast<long long>((two & 1 ? 0x00ff00ff00ff00ffull : 0ull) |
                                      (two & 2 ? 0xff00ff00ff00ff00ull : 0ull));
      };
      const long long low = pair(live), high = pair(live >> 2);
      const __m256i mask = _mm256_setr_epi64x(low, high, low, high);
      return decode_fp8<kTable>(_mm256_and_si256(load_bytes(p), mask),
                                _mm256_and_si256(second(p), mask));
    }
    static PF_INLINE Weight weight(const std::byte* p) { return broadcast_four(p); }
    static PF_INLINE Floats dot(Floats acc, const Values& v, const Weight& w) {
      return dot_four(acc, v, w);
    }
  };
};

}  // namespace
}  // namespace pagefold::kernels
