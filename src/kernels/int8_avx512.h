// What the AVX-512 kernels with int8 inputs share. Internal linkage, always inlined.
#pragma once

#include "kernels/simd_avx512.h"

namespace pagefold::kernels::avx512 {
namespace {

// d += 4 products of each lane. g++ 12 surrounds the intrinsic with moves and spills where many
// accumulators are live; the statement leaves it nothing to add.
PF_ISA_INLINE void dot4(__m512i& d, __m512i w, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(d) : "v"(w), "v"(x));
}

// Quad i of 8 of a block: inputs 4i .. 4i + 3 of 16 outputs, as vpdpbusd's unsigned operand.
// kOffset: the operand is the weight + 128.
PF_ISA_INLINE __m512i load_nibbles(const std::byte* values, int i) {
  const __m512i v = _mm512_load_si512(values + i % 4 * 64);
  return _mm512_and_si512(i < 4 ? v : _mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}
struct W4 {
  static constexpr bool kOffset = false, kNibbles = true;
  PF_ISA_INLINE explicit W4(const MatmulArgs&) {}
  PF_ISA_INLINE static __m512i load(const std::byte* values, int i) {
    return load_nibbles(values, i);
  }
};
struct W8 {
  static constexpr bool kOffset = true, kNibbles = false;
  PF_ISA_INLINE explicit W8(const MatmulArgs&) {}
  PF_ISA_INLINE static __m512i load(const std::byte* values, int i) {
    return _mm512_load_si512(values + i * 64);
  }
};
struct T4 {
  static constexpr bool kOffset = true, kNibbles = true;
  __m512i table;  // + 128, once in each 128-bit lane
  PF_ISA_INLINE explicit T4(const MatmulArgs& a) {
    const __m512i t = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_loadu_ps(a.weights->table)),
                                       _mm512_set1_epi32(128));
    table = _mm512_broadcast_i32x4(_mm512_cvtepi32_epi8(t));
  }
  PF_ISA_INLINE __m512i load(const std::byte* values, int i) const {
    return _mm512_shuffle_epi8(table, load_nibbles(values, i));
  }
};

}  // namespace
}  // namespace pagefold::kernels::avx512
