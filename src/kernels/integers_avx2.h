// How integer keys and values are multiplied in pairs of 16 bits. Of four bytes those at 0 and 2
// make one register, those at 1 and 3 another; queries and weights lie in that order. Four bits and
// the eight that meet them are multiplied as bytes. Include after vec_avx2.h.
#pragma once

#include "kernels/attention_parts.h"

namespace pagefold::kernels {
namespace {

struct Ints {
  __m256i a, b;
};
PF_INLINE Ints load_ints(const std::byte* p) {
  const auto* at = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
PF_INLINE Ints no_sums() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
PF_INLINE Ints add_products(const Ints& sum, const Ints& x, __m256i y) {
  return {_mm256_add_epi32(sum.a, _mm256_madd_epi16(x.a, y)),
          _mm256_add_epi32(sum.b, _mm256_madd_epi16(x.b, y))};
}
PF_INLINE Floats as_floats(const Ints& x) {
  return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
// Bits [shift, shift + width) of every 16.
template <int shift, int mask>
PF_INLINE Ints field(const Ints& x) {
  const __m256i bits = _mm256_set1_epi16(mask);
  return {_mm256_and_si256(_mm256_srli_epi16(x.a, shift), bits),
          _mm256_and_si256(_mm256_srli_epi16(x.b, shift), bits)};
}

// Sixteen whole numbers of 16 bits.
PF_INLINE __m256i in_words(Floats x) {
  return _mm256_permute4x64_epi64(
      _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)), 0xd8);
}

// Sixteen whole numbers of 16 bits; of four those at 0, 2, 1, 3.
PF_INLINE __m256i in_pairs(Floats x) {
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1,
                                         4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  return _mm256_shuffle_epi8(in_words(x), order);
}

// n: 8 or 16 of the integers in x.
PF_INLINE void store_query_integers(std::byte* q, int d, int, Floats x, int n) {
  const __m256i v = in_pairs(x);
  if (n == 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 2 * d), v);
  else
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 2 * d), _mm256_castsi256_si128(v));
}

// n: 8 or 16 of the integers in x, a byte each.
PF_INLINE void store_query_bytes(std::byte* q, Floats x, int n) {
  const __m256i words = in_words(x);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  if (n == 16)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), bytes);
  else
    _mm_storel_epi64(reinterpret_cast<__m128i*>(q), bytes);
}

PF_INLINE __m256i broadcast_pair(const std::byte* p) {
  int bits;
  __builtin_memcpy(&bits, p, 4);
  return _mm256_set1_epi32(bits);
}

struct PairsOfFour {
  __m256i even, odd;
};
PF_INLINE PairsOfFour broadcast_four_integers(const std::byte* p) {
  return {broadcast_pair(p), broadcast_pair(p + 4)};
}

struct KeysInt8 {
  static constexpr int kDims = 4;
  static constexpr bool kHasZero = false;
  static constexpr int strips(int) { return 1; }
  using Acc = Ints;
  struct Keys {
    Ints even, odd;
  };
  using Query = PairsOfFour;
  static PF_INLINE Acc zero() { return no_sums(); }
  static PF_INLINE Keys load(const std::byte* p) {
    const Ints x = load_ints(p);
    return {field<0, 0xff>(x), field<8, 0xff>(x)};
  }
  static PF_INLINE Query query(const std::byte* q, int d, int) {
    return broadcast_four_integers(q + 2 * d);
  }
  static PF_INLINE Acc dot(const Acc& a, const Keys& k, const Query& q) {
    return add_products(add_products(a, k.even, q.even), k.odd, q.odd);
  }
  static PF_INLINE Floats exact(const Acc& a, int32_t sum) {
    const __m256i offset = _mm256_set1_epi32(128 * sum);
    return as_floats({_mm256_sub_epi32(a.a, offset), _mm256_sub_epi32(a.b, offset)});
  }
};

// The low and the high four bits of bytes, a byte each.
struct Nibbles {
  Ints low, high;
};
PF_INLINE Nibbles load_nibbles(const std::byte* p) {
  const Ints x = load_ints(p);
  const __m256i bits = _mm256_set1_epi8(15);
  return {{_mm256_and_si256(x.a, bits), _mm256_and_si256(x.b, bits)},
          {_mm256_and_si256(_mm256_srli_epi16(x.a, 4), bits),
           _mm256_and_si256(_mm256_srli_epi16(x.b, 4), bits)}};
}
// What the low and the high nibbles of four elements are multiplied with.
struct EightBytes {
  __m256i low, high;
};
// Sums of pairs of products: below 4 x 15 x 255, which 16 bits hold; then of fours.
PF_INLINE Ints add_pairs(const Ints& sum, __m256i a, __m256i b) {
  const __m256i one = _mm256_set1_epi16(1);
  return add_products(sum, {a, b}, one);
}

struct KeysInt4 {
  static constexpr int kDims = 8;
  static constexpr bool kHasZero = true;
  static constexpr int strips(int) { return 1; }
  using Acc = Ints;
  using Keys = Nibbles;
  using Query = EightBytes;
  static PF_INLINE Acc zero() { return no_sums(); }
  static PF_INLINE Keys load(const std::byte* p) { return load_nibbles(p); }
  static PF_INLINE Query query(const std::byte* q, int d, int) {
    return {broadcast_pair(q + d), broadcast_pair(q + d + 4)};
  }
  static PF_INLINE __m256i pairs(__m256i low, __m256i high, const Query& q) {
    return _mm256_add_epi16(_mm256_maddubs_epi16(low, q.low), _mm256_maddubs_epi16(high, q.high));
  }
  static PF_INLINE Acc dot(const Acc& a, const Keys& k, const Query& q) {
    return add_pairs(a, pairs(k.low.a, k.high.a, q), pairs(k.low.b, k.high.b, q));
  }
  static PF_INLINE Floats exact(const Acc& a, int32_t) { return as_floats(a); }
};

struct ValuesInt8 {
  static constexpr int kSlots = 4;
  static constexpr float kSteps = 32767.0f;
  static constexpr bool kHasZero = false, kDiffused = false;
  static constexpr int regs(int) { return 1; }
  using Acc = Ints;
  struct Values {
    Ints even, odd;
  };
  using Weight = PairsOfFour;
  static PF_INLINE Acc zero() { return no_sums(); }
  static PF_INLINE Values load(const std::byte* p) {
    const Ints x = load_ints(p);
    const Ints even{_mm256_srai_epi16(_mm256_slli_epi16(x.a, 8), 8),
                    _mm256_srai_epi16(_mm256_slli_epi16(x.b, 8), 8)};
    return {even, {_mm256_srai_epi16(x.a, 8), _mm256_srai_epi16(x.b, 8)}};
  }
  static PF_INLINE void store_weights(std::byte* row, int slot, Floats n) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + 2 * slot), in_pairs(n));
  }
  static PF_INLINE Weight weight(const std::byte* row, int slot) {
    return broadcast_four_integers(row + 2 * slot);
  }
  static PF_INLINE Acc dot(const Acc& a, const Values& v, const Weight& w) {
    return add_products(add_products(a, v.even, w.even), v.odd, w.odd);
  }
  static PF_INLINE Floats exact(const Acc& a) { return as_floats(a); }
};

struct ValuesInt4 {
  static constexpr int kSlots = 8;
  static constexpr float kSteps = 254.0f;
  static constexpr bool kHasZero = true, kDiffused = true;
  static constexpr int regs(int) { return 1; }
  using Acc = Ints;
  using Values = Nibbles;
  using Weight = EightBytes;
  static PF_INLINE Acc zero() { return no_sums(); }
  static PF_INLINE Values load(const std::byte* p) { return load_nibbles(p); }
  static PF_INLINE void store_weights(std::byte* row, int slot, Floats n) {
    const __m256i words = in_words(n);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(row + slot),
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
  static PF_INLINE Weight weight(const std::byte* row, int slot) {
    return {broadcast_pair(row + slot), broadcast_pair(row + slot + 4)};
  }
  static PF_INLINE __m256i pairs(__m256i low, __m256i high, const Weight& w) {
    return _mm256_add_epi16(_mm256_maddubs_epi16(w.low, low), _mm256_maddubs_epi16(w.high, high));
  }
  static PF_INLINE Acc dot(const Acc& a, const Values& v, const Weight& w) {
    return add_pairs(a, pairs(v.low.a, v.high.a, w), pairs(v.low.b, v.high.b, w));
  }
  static PF_INLINE Floats exact(const Acc& a) { return as_floats(a); }
};

}  // namespace
}  // namespace pagefold::kernels
