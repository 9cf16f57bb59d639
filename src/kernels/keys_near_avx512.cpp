// Products of int8 codes, four a lane and instruction.
#include <immintrin.h>

#include "kernels/keys.h"

#define PF_INLINE inline __attribute__((always_inline))

namespace pagefold::kernels::avx512 {
namespace {

// d += 4 products of each lane, w unsigned. As a statement because of what g++ 12 does around the
// intrinsic (int8_avx512.h).
PF_INLINE void dot4(__m512i& d, __m512i w, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(d) : "v"(w), "v"(x));
}

PF_INLINE const int8_t* codes_of(const StripNearArgs& a, int slot) {
  return a.codes + int64_t{slot / kStripSlots} * a.head_dim * kStripSlots + slot % kStripSlots * 4;
}

// The strips' codes are made unsigned by adding 128, which adds 128 x the row's sum.
template <int kRows, int kStrips>
PF_INLINE void near_tile(const StripNearArgs& a, int row, int strip) {
  const int8_t* rows[kRows];
  __m512i sum[kRows][kStrips];
  for (int r = 0; r < kRows; ++r) {
    const int slot = a.rows[row + r];
    rows[r] = codes_of(a, slot);
    for (int s = 0; s < kStrips; ++s) sum[r][s] = _mm512_set1_epi32(-a.limit - 128 * a.sums[slot]);
  }
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(0x80));
  const int64_t strip_bytes = int64_t{a.head_dim} * kStripSlots;
  const int8_t* columns = a.codes + (a.first_strip + strip) * strip_bytes;
  for (int64_t at = 0; at < strip_bytes; at += 64) {
    __m512i column[kStrips];
    for (int s = 0; s < kStrips; ++s)
      column[s] = _mm512_xor_si512(_mm512_load_si512(columns + s * strip_bytes + at), offset);
    for (int r = 0; r < kRows; ++r) {
      int32_t quad;
      __builtin_memcpy(&quad, rows[r] + at, sizeof quad);
      const __m512i x = _mm512_set1_epi32(quad);
      for (int s = 0; s < kStrips; ++s) dot4(sum[r][s], column[s], x);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int s = 0; s < kStrips; ++s)
      a.out[(row + r) * a.n_strips + strip + s] =
          static_cast<uint16_t>(_mm512_cmpgt_epi32_mask(sum[r][s], _mm512_setzero_si512()));
}

template <int kStrips>
PF_INLINE void near_rows(const StripNearArgs& a, int strip) {
  int row = 0;
  for (; row + 8 <= a.n_rows; row += 8) near_tile<8, kStrips>(a, row, strip);
  for (; row + 2 <= a.n_rows; row += 2) near_tile<2, kStrips>(a, row, strip);
  if (row < a.n_rows) near_tile<1, kStrips>(a, row, strip);
}

}  // namespace

void near_strips(const StripNearArgs& a) {
  int strip = 0;
  for (; strip + 2 <= a.n_strips; strip += 2) near_rows<2>(a, strip);
  if (strip < a.n_strips) near_rows<1>(a, strip);
}

}  // namespace pagefold::kernels::avx512
