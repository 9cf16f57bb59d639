// Products of int8 codes, two steps of pairs a lane.
#include <immintrin.h>

#include "kernels/keys.h"

#define PF_INLINE inline __attribute__((always_inline))

namespace pagefold::kernels::avx2 {
namespace {

PF_INLINE const int8_t* codes_of(const StripNearArgs& a, int slot) {
  return a.codes + int64_t{slot / kStripSlots} * a.head_dim * kStripSlots + slot % kStripSlots * 4;
}

// |column| is the unsigned operand of vpmaddubsw and the row takes the column's sign: two products
// stay within 2 x 127 x 127, which 16 bits hold.
template <int kRows>
PF_INLINE void near_tile(const StripNearArgs& a, int row, int strip) {
  const int8_t* rows[kRows];
  __m256i sum[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = codes_of(a, a.rows[row + r]);
    sum[r][0] = sum[r][1] = _mm256_set1_epi32(-a.limit);
  }
  const __m256i ones = _mm256_set1_epi16(1);
  const int64_t strip_bytes = int64_t{a.head_dim} * kStripSlots;
  const int8_t* columns = a.codes + (a.first_strip + strip) * strip_bytes;
  for (int64_t at = 0; at < strip_bytes; at += 64) {
    for (int half = 0; half < 2; ++half) {
      const __m256i column =
          _mm256_load_si256(reinterpret_cast<const __m256i*>(columns + at + half * 32));
      const __m256i magnitude = _mm256_abs_epi8(column);
      for (int r = 0; r < kRows; ++r) {
        int32_t quad;
        __builtin_memcpy(&quad, rows[r] + at, sizeof quad);
        const __m256i x = _mm256_sign_epi8(_mm256_set1_epi32(quad), column);
        const __m256i pairs = _mm256_maddubs_epi16(magnitude, x);
        sum[r][half] = _mm256_add_epi32(sum[r][half], _mm256_madd_epi16(pairs, ones));
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    unsigned bits = 0;
    for (int half = 0; half < 2; ++half) {
      const __m256i above = _mm256_cmpgt_epi32(sum[r][half], _mm256_setzero_si256());
      bits |= static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(above))) << (8 * half);
    }
    a.out[(row + r) * a.n_strips + strip] = static_cast<uint16_t>(bits);
  }
}

}  // namespace

void near_strips(const StripNearArgs& a) {
  for (int strip = 0; strip < a.n_strips; ++strip) {
    int row = 0;
    for (; row + 4 <= a.n_rows; row += 4) near_tile<4>(a, row, strip);
    for (; row < a.n_rows; ++row) near_tile<1>(a, row, strip);
  }
}

}  // namespace pagefold::kernels::avx2
