// How integer keys and values are multiplied with VNNI: eight bits at a time, so integers of 15
// bits are two digits of base 128; what meets four bits has eight. Include after vec_avx512.h.
#pragma once

#include "kernels/attention_parts.h"

namespace pagefold::kernels {
namespace {

// sum += u (unsigned bytes) . s (signed ones), four to a lane. In place: with the intrinsic g++ 12
// copies every accumulator in every step.
PF_INLINE __m512i add_dots(__m512i sum, __m512i u, __m512i s) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s));
  return sum;
}

struct DigitSums {
  __m512i high, low;
};
PF_INLINE DigitSums no_sums() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
PF_INLINE __m512i joined(const DigitSums& a) {
  return _mm512_add_epi32(_mm512_slli_epi32(a.high, 7), a.low);
}
PF_INLINE __m512i low_nibbles(__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
PF_INLINE __m512i high_nibbles(__m512i x) { return low_nibbles(_mm512_srli_epi16(x, 4)); }

// Prepared queries: the high digits (signed), then the low ones (-64..63), a byte a dimension.
// n: 8 or 16 of the integers in x.
PF_INLINE void store_query_integers(std::byte* q, int d, int head_dim, __m512 x, int n) {
  const __m512i v = _mm512_cvtps_epi32(x);
  const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(64)), 7);
  const __m512i low = _mm512_sub_epi32(v, _mm512_slli_epi32(high, 7));
  const auto mask = static_cast<__mmask16>(n == 16 ? 0xffff : 0xff);
  _mm512_mask_cvtepi32_storeu_epi8(q + d, mask, high);
  _mm512_mask_cvtepi32_storeu_epi8(q + head_dim + d, mask, low);
}

PF_INLINE void store_query_bytes(std::byte* q, __m512 x, int n) {
  const auto mask = static_cast<__mmask16>(n == 16 ? 0xffff : 0xff);
  _mm512_mask_cvtepi32_storeu_epi8(q, mask, _mm512_cvtps_epi32(x));
}

struct KeysInt8 {
  static constexpr int kDims = 4;
  static constexpr bool kHasZero = false;
  static constexpr int strips(int queries) { return queries <= 3 ? 4 : 2; }
  using Acc = DigitSums;
  using Keys = __m512i;
  struct Query {
    __m512i high, low;
  };
  static PF_INLINE Acc zero() { return no_sums(); }
  static PF_INLINE Keys load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static PF_INLINE Query query(const std::byte* q, int d, int head_dim) {
    return {broadcast32(q + d), broadcast32(q + head_dim + d)};
  }
  static PF_INLINE Acc dot(const Acc& a, Keys k, const Query& q) {
    return {add_dots(a.high, k, q.high), add_dots(a.low, k, q.low)};
  }
  static PF_INLINE __m512 exact(const Acc& a, int32_t sum) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(joined(a), _mm512_set1_epi32(128 * sum)));
  }
};

struct KeysInt4 {
  static constexpr int kDims = 8;
  static constexpr bool kHasZero = true;
  static constexpr int strips(int queries) { return queries <= 1 ? 4 : 2; }
  using Acc = __m512i;
  struct Keys {
    __m512i low, high;
  };
  struct Query {
    __m512i low, high;
  };
  static PF_INLINE Acc zero() { return _mm512_setzero_si512(); }
  static PF_INLINE Keys load(const std::byte* p) {
    const __m512i x = _mm512_loadu_si512(p);
    return {low_nibbles(x), high_nibbles(x)};
  }
  static PF_INLINE Query query(const std::byte* q, int d, int) {
    return {broadcast32(q + d), broadcast32(q + d + 4)};
  }
  static PF_INLINE Acc dot(Acc a, const Keys& k, const Query& q) {
    return add_dots(add_dots(a, k.low, q.low), k.high, q.high);
  }
  static PF_INLINE __m512 exact(Acc a, int32_t) { return _mm512_cvtepi32_ps(a); }
};

// Weights: a row of high digits (unsigned), then of low ones, a byte a slot.
struct ValuesInt8 {
  static constexpr int kSlots = 4;
  static constexpr float kSteps = 32767.0f;
  static constexpr bool kHasZero = false, kDiffused = false;
  static constexpr int regs(int queries) { return queries <= 3 ? 4 : 2; }
  using Acc = DigitSums;
  using Values = __m512i;
  struct Weight {
    __m512i high, low;
  };
  static PF_INLINE Acc zero() { return no_sums(); }
  static PF_INLINE Values load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static PF_INLINE void store_weights(std::byte* row, int slot, __m512 n) {
    const __m512i v = _mm512_cvtps_epi32(n);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + slot),
                     _mm512_cvtepi32_epi8(_mm512_srli_epi32(v, 7)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + kChunkSlots + slot),
                     _mm512_cvtepi32_epi8(_mm512_and_si512(v, _mm512_set1_epi32(127))));
  }
  static PF_INLINE Weight weight(const std::byte* row, int slot) {
    return {broadcast32(row + slot), broadcast32(row + kChunkSlots + slot)};
  }
  static PF_INLINE Acc dot(const Acc& a, Values v, const Weight& w) {
    return {add_dots(a.high, w.high, v), add_dots(a.low, w.low, v)};
  }
  static PF_INLINE __m512 exact(const Acc& a) { return _mm512_cvtepi32_ps(joined(a)); }
};

struct ValuesInt4 {
  static constexpr int kSlots = 8;
  static constexpr float kSteps = 254.0f;
  static constexpr bool kHasZero = true, kDiffused = true;
  static constexpr int regs(int queries) { return queries <= 3 ? 4 : 2; }
  using Acc = __m512i;
  struct Values {
    __m512i low, high;
  };
  struct Weight {
    __m512i low, high;
  };
  static PF_INLINE Acc zero() { return _mm512_setzero_si512(); }
  static PF_INLINE void store_weights(std::byte* row, int slot, __m512 n) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + slot),
                     _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(n)));
  }
  static PF_INLINE Values load(const std::byte* p) {
    const __m512i x = _mm512_loadu_si512(p);
    return {low_nibbles(x), high_nibbles(x)};
  }
  static PF_INLINE Weight weight(const std::byte* row, int slot) {
    return {broadcast32(row + slot), broadcast32(row + slot + 4)};
  }
  static PF_INLINE Acc dot(Acc a, const Values& v, const Weight& w) {
    return add_dots(add_dots(a, w.low, v.low), w.high, v.high);
  }
  static PF_INLINE __m512 exact(Acc a) { return _mm512_cvtepi32_ps(a); }
};

}  // namespace
}  // namespace pagefold::kernels
