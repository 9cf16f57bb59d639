// Decoding fp8: two lookups in tables of 128 bytes give the upper two bytes of a float32, which are
// all it needs; subnormals, infinities and NaN are entries like the others. Include after
// vec_avx512.h.
#pragma once

#include "kernels/attention_parts.h"

namespace pagefold::kernels {
namespace {

// Lane i of v[2p + b] is byte 16c + 8p + 2(i % 4) + b of the 64, c = i / 4.
struct Decoded {
  __m512 v[4];
};

template <const Fp8Table* kTable>
PF_INLINE Decoded decode_fp8(__m512i x) {
  const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(kTable->low), x,
                                               _mm512_load_si512(kTable->low + 64));
  const __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(kTable->high), x,
                                                _mm512_load_si512(kTable->high + 64));
  // high | (x & 0x80)
  const __m512i top =
      _mm512_ternarylogic_epi32(high, x, _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);
  const __m512i a = _mm512_unpacklo_epi8(low, top), b = _mm512_unpackhi_epi8(low, top);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return {{_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
           _mm512_castsi512_ps(_mm512_and_si512(a, upper)),
           _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)),
           _mm512_castsi512_ps(_mm512_and_si512(b, upper))}};
}

// The codes of 16 numbers, by the steps of base/fp8.h. Returns how many saturated.
template <int kMantissa, int kBias, int kLargest>
PF_INLINE unsigned encode_fp8(__m512 x, uint8_t* out) {
  constexpr int kDropped = 23 - kMantissa;
  const __m512i magic = _mm512_set1_epi32((128 - kBias - kMantissa + 23) << 23);
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i abs = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(abs, kDropped), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_add_epi32(abs, _mm512_add_epi32(odd, _mm512_set1_epi32((1 << (kDropped - 1)) - 1)));
  const __m512i normal = _mm512_sub_epi32(_mm512_srli_epi32(rounded, kDropped),
                                          _mm512_set1_epi32((127 - kBias) << kMantissa));
  const __m512i small = _mm512_sub_epi32(
      _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(abs), _mm512_castsi512_ps(magic))),
      magic);
  const __mmask16 is_small = _mm512_cmplt_epi32_mask(abs, _mm512_set1_epi32((128 - kBias) << 23));
  const __mmask16 is_nan = _mm512_cmpgt_epi32_mask(abs, _mm512_set1_epi32(0x7f800000));
  __m512i code = _mm512_mask_mov_epi32(normal, is_small, small);
  const __m512i largest = _mm512_set1_epi32(kLargest);
  const __mmask16 beyond =
      _mm512_mask_cmpgt_epi32_mask(static_cast<__mmask16>(~is_nan), code, largest);
  code = _mm512_mask_mov_epi32(_mm512_min_epi32(code, largest), is_nan, _mm512_set1_epi32(0x7f));
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                   _mm512_cvtepi32_epi8(_mm512_or_si512(code, sign)));
  return static_cast<unsigned>(__builtin_popcount(beyond));
}

struct FourFloats {
  __m512 v[4];
};
PF_INLINE FourFloats broadcast_four(const std::byte* p) {
  return {{_mm512_castsi512_ps(broadcast32(p)), _mm512_castsi512_ps(broadcast32(p + 4)),
           _mm512_castsi512_ps(broadcast32(p + 8)), _mm512_castsi512_ps(broadcast32(p + 12))}};
}
PF_INLINE __m512 dot_four(__m512 acc, const Decoded& x, const FourFloats& y) {
  acc = _mm512_fmadd_ps(x.v[0], y.v[0], acc);
  acc = _mm512_fmadd_ps(x.v[1], y.v[1], acc);
  acc = _mm512_fmadd_ps(x.v[2], y.v[2], acc);
  return _mm512_fmadd_ps(x.v[3], y.v[3], acc);
}

template <const Fp8Table* kTable>
struct KeysFp8 {
  static constexpr int kDims = 4;
  static constexpr int kQueryBytes = 16;
  static constexpr int strips(int queries) { return queries <= 2 ? 4 : 2; }
  using Keys = Decoded;
  using Query = FourFloats;
  static PF_INLINE Keys load(const std::byte* p) {
    return decode_fp8<kTable>(_mm512_loadu_si512(p));
  }
  static PF_INLINE Query query(const std::byte* p) { return broadcast_four(p); }
  static PF_INLINE __m512 dot(__m512 acc, const Keys& k, const Query& q) {
    return dot_four(acc, k, q);
  }
};

template <const Fp8Table* kTable>
struct Fp8Values {
  template <bool Half>
  struct Of {
    static constexpr int regs(int) { return 2; }
    static constexpr int kSlots = 4;
    static constexpr int kDimBytes = 4;
    static constexpr int kWeightBytes = 4;
    using Values = Decoded;
    using Weight = FourFloats;
    static PF_INLINE __m512i bytes(const std::byte* p) {
      return _mm512_maskz_loadu_epi32(Half ? 0xff : 0xffff, p);
    }
    static PF_INLINE Values load(const std::byte* p) { return decode_fp8<kTable>(bytes(p)); }
    static PF_INLINE Values load_live(const std::byte* p, unsigned live) {
      const uint64_t sixteen = (live & 1 ? 0x0055u : 0u) | (live & 2 ? 0x00aau : 0u) |
                               (live & 4 ? 0x5500u : 0u) | (live & 8 ? 0xaa00u : 0u);
      return decode_fp8<kTable>(_mm512_maskz_mov_epi8(sixteen * 0x0001000100010001u, bytes(p)));
    }
    static PF_INLINE Weight weight(const std::byte* p) { return broadcast_four(p); }
    static PF_INLINE __m512 dot(__m512 acc, const Values& v, const Weight& w) {
      return dot_four(acc, v, w);
    }
  };
};

}  // namespace
}  // namespace pagefold::kernels
