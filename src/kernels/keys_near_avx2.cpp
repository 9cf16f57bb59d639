// Keys that are alike: rows of unit length, their codes, and products of those, two steps of pairs
// a lane.
#include "kernels/vec_avx2.h"

namespace pagefold::kernels {
namespace {

struct Rows {
  static PF_INLINE __m256 inverse_sqrt8(__m256 v) {
    return _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_sqrt_ps(v));
  }
  static PF_INLINE Floats inverse_sqrt(Floats v) {
    return {inverse_sqrt8(v.a), inverse_sqrt8(v.b)};
  }
  static PF_INLINE Floats abs(Floats v) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, v.a), _mm256_andnot_ps(sign, v.b)};
  }
  // Of eight rows; returns their sum.
  static PF_INLINE __m256 store4x8(__m256 x0, __m256 x1, __m256 x2, __m256 x3, float* rows,
                                   int64_t stride) {
    const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(x0, x1));
    const __m256d b = _mm256_castps_pd(_mm256_unpackhi_ps(x0, x1));
    const __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(x2, x3));
    const __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(x2, x3));
    // Half h of y[i]: row 4 h + i.
    const __m256 y[4] = {
        _mm256_castpd_ps(_mm256_unpacklo_pd(a, c)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, c)),
        _mm256_castpd_ps(_mm256_unpacklo_pd(b, d)), _mm256_castpd_ps(_mm256_unpackhi_pd(b, d))};
    for (int i = 0; i < 4; ++i) {
      _mm_storeu_ps(rows + i * stride, _mm256_castps256_ps128(y[i]));
      _mm_storeu_ps(rows + (i + 4) * stride, _mm256_extractf128_ps(y[i], 1));
    }
    return _mm256_add_ps(_mm256_add_ps(y[0], y[1]), _mm256_add_ps(y[2], y[3]));
  }
  static PF_INLINE void store4(Floats (&x)[4], float* rows, int64_t stride, float* sums) {
    const __m256 low = store4x8(x[0].a, x[1].a, x[2].a, x[3].a, rows, stride);
    const __m256 high = store4x8(x[0].b, x[1].b, x[2].b, x[3].b, rows + 8 * stride, stride);
    const __m256 all = _mm256_add_ps(low, high);
    const __m128 sum = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
    _mm_storeu_ps(sums, _mm_add_ps(_mm_loadu_ps(sums), sum));
  }
};

}  // namespace
}  // namespace pagefold::kernels

#define PF_KEYS_OVER_VEC
#include "kernels/keys_units.h"

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

StripUnits unit_strip(const StripUnitArgs& args) { return unit_rows(args); }

void dot_rows(const RowDotArgs& args) { row_dots(args); }

void encode_strip(const StripEncodeArgs& a) {
  const __m256 factor = _mm256_set1_ps(a.inverse_scale);
  const __m256i ones = _mm256_set1_epi16(1), byte_ones = _mm256_set1_epi8(1);
  for (int lane = 0; lane < kStripSlots; ++lane) {
    const float* row = a.rows + lane * a.head_dim;
    int8_t* to = a.codes + lane * 4;
    for (int d = 0; d < a.head_dim; d += 8, to += 128) {
      const __m256i codes = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(row + d), factor));
      const __m128i words =
          _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
      const __m128i bytes = _mm_packs_epi16(words, words);
      _mm_storeu_si32(to, bytes);
      _mm_storeu_si32(to + 64, _mm_shuffle_epi32(bytes, 1));
    }
  }
  for (int half = 0; half < 2; ++half) {
    __m256i sum = _mm256_setzero_si256();
    for (int d = 0; d < a.head_dim; d += 4) {
      const auto* codes = reinterpret_cast<const __m256i*>(a.codes + d * 16 + half * 32);
      const __m256i pairs = _mm256_maddubs_epi16(byte_ones, _mm256_load_si256(codes));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(a.sums) + half, sum);
  }
}

void near_strips(const StripNearArgs& a) {
  for (int strip = 0; strip < a.n_strips; ++strip) {
    int row = 0;
    for (; row + 4 <= a.n_rows; row += 4) near_tile<4>(a, row, strip);
    for (; row < a.n_rows; ++row) near_tile<1>(a, row, strip);
  }
}

}  // namespace pagefold::kernels::avx2
