// Keys that are alike: rows of unit length, their codes, and products of those, four a lane and
// instruction.
#include "kernels/vec_avx512.h"

namespace pagefold::kernels {
namespace {

struct Rows {
  static PF_INLINE __m512 inverse_sqrt(__m512 v) {
    return _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_sqrt_ps(v));
  }
  static PF_INLINE __m512 abs(__m512 v) { return _mm512_abs_ps(v); }
  static PF_INLINE void store4(__m512 (&x)[4], float* rows, int64_t stride, float* sums) {
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(x[0], x[1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(x[0], x[1]));
    const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(x[2], x[3]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(x[2], x[3]));
    // Quarter q of y[i]: row 4 q + i.
    const __m512 y[4] = {
        _mm512_castpd_ps(_mm512_unpacklo_pd(a, c)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, c)),
        _mm512_castpd_ps(_mm512_unpacklo_pd(b, d)), _mm512_castpd_ps(_mm512_unpackhi_pd(b, d))};
    for (int i = 0; i < 4; ++i) {
      float* to = rows + i * stride;
      _mm_storeu_ps(to, _mm512_castps512_ps128(y[i]));
      _mm_storeu_ps(to + 4 * stride, _mm512_extractf32x4_ps(y[i], 1));
      _mm_storeu_ps(to + 8 * stride, _mm512_extractf32x4_ps(y[i], 2));
      _mm_storeu_ps(to + 12 * stride, _mm512_extractf32x4_ps(y[i], 3));
    }
    const __m512 all = _mm512_add_ps(_mm512_add_ps(y[0], y[1]), _mm512_add_ps(y[2], y[3]));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    const __m128 sum = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    _mm_storeu_ps(sums, _mm_add_ps(_mm_loadu_ps(sums), sum));
  }
};

}  // namespace
}  // namespace pagefold::kernels

#define PF_KEYS_OVER_VEC
#include "kernels/keys_units.h"

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

StripUnits unit_strip(const StripUnitArgs& args) { return unit_rows(args); }

void dot_rows(const RowDotArgs& args) { row_dots(args); }

void encode_strip(const StripEncodeArgs& a) {
  const __m512 factor = _mm512_set1_ps(a.inverse_scale);
  for (int lane = 0; lane < kStripSlots; ++lane) {
    const float* row = a.rows + lane * a.head_dim;
    int8_t* to = a.codes + lane * 4;
    for (int d = 0; d < a.head_dim; d += 16, to += 256) {
      const int n = a.head_dim - d < 16 ? 8 : 16;
      const __m128i bytes =
          _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(Vec::load_n(row + d, n), factor)));
      _mm_storeu_si32(to, bytes);
      _mm_storeu_si32(to + 64, _mm_shuffle_epi32(bytes, 1));
      if (n < 16) break;
      _mm_storeu_si32(to + 128, _mm_shuffle_epi32(bytes, 2));
      _mm_storeu_si32(to + 192, _mm_shuffle_epi32(bytes, 3));
    }
  }
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sum = _mm512_setzero_si512();
  for (int d = 0; d < a.head_dim; d += 4) dot4(sum, ones, _mm512_load_si512(a.codes + d * 16));
  _mm512_storeu_si512(a.sums, sum);
}

void near_strips(const StripNearArgs& a) {
  int strip = 0;
  for (; strip + 2 <= a.n_strips; strip += 2) near_rows<2>(a, strip);
  if (strip < a.n_strips) near_rows<1>(a, strip);
}

}  // namespace pagefold::kernels::avx512
