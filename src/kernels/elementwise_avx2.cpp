#include <immintrin.h>

#include "kernels/matmul_isa.h"

namespace pagefold::kernels::avx2 {
namespace {

#define PF_ISA_INLINE __attribute__((always_inline)) inline

// Tails: lanes past n read as zero and are not written.
PF_ISA_INLINE __m256i first_lanes(int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n >= 8 ? 8 : static_cast<int>(n)), lane);
}

// Integer rounding to nearest even, as f32_to_bf16; the result is in the low 16 bits of each lane.
PF_ISA_INLINE __m256i bf16_bits(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
}

PF_ISA_INLINE __m256 power_of_2(__m256i n) {  // -126 <= n <= 127
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

// As exp_ps in elementwise_avx512.cpp, with 2^n as two factors, either of which is representable.
PF_ISA_INLINE __m256 exp_ps(__m256 x) {
  x = _mm256_min_ps(_mm256_set1_ps(100.0f), x);
  x = _mm256_max_ps(_mm256_set1_ps(-110.0f), x);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
  __m256 p = _mm256_set1_ps(1.0f / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
  p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r);
  p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  p = _mm256_mul_ps(p, power_of_2(half));
  return _mm256_mul_ps(p, power_of_2(_mm256_sub_epi32(whole, half)));
}

}  // namespace

void to_bf16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i v = bf16_bits(_mm256_maskload_ps(x + i, first_lanes(n - i)));
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    if (n - i >= 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), packed);
    } else {
      alignas(16) uint16_t part[8];
      _mm_store_si128(reinterpret_cast<__m128i*>(part), packed);
      for (int64_t j = 0; j < n - i; ++j) y[i + j] = part[j];
    }
  }
}

void round_to(DType dtype, float* x, int64_t n) {
  if (dtype == DType::f32) return;
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i m = first_lanes(n - i);
    const __m256 v = _mm256_maskload_ps(x + i, m);
    const __m256 rounded =
        dtype == DType::bf16
            ? _mm256_castsi256_ps(_mm256_slli_epi32(bf16_bits(v), 16))
            : _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm256_maskstore_ps(x + i, m, rounded);
  }
}

// Value i is summed in lane i % 8 of accumulator i / 8 % 4.
void rms_norm(const float* x, const float* gamma, float eps, int n, float* y) {
  __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                   _mm256_setzero_ps()};
  for (int i = 0; i < n; i += 32) {
    for (int j = 0; j < 4 && i + j * 8 < n; ++j) {
      const __m256 v = _mm256_maskload_ps(x + i + j * 8, first_lanes(n - i - j * 8));
      sum[j] = _mm256_fmadd_ps(v, v, sum[j]);
    }
  }
  const __m256 total = _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]));
  __m128 t = _mm_add_ps(_mm256_castps256_ps128(total), _mm256_extractf128_ps(total, 1));
  t = _mm_add_ps(t, _mm_movehl_ps(t, t));
  t = _mm_add_ss(t, _mm_movehdup_ps(t));
  const __m128 mean = _mm_set_ss(_mm_cvtss_f32(t) / static_cast<float>(n) + eps);
  const __m256 r = _mm256_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(mean)));
  for (int i = 0; i < n; i += 8) {
    const __m256i m = first_lanes(n - i);
    const __m256 v = _mm256_mul_ps(_mm256_maskload_ps(x + i, m), r);
    _mm256_maskstore_ps(y + i, m, _mm256_mul_ps(v, _mm256_maskload_ps(gamma + i, m)));
  }
}

void silu_mul(const float* gate, const float* up, int n, float* y) {
  const __m256 one = _mm256_set1_ps(1.0f);
  for (int i = 0; i < n; i += 8) {
    const __m256i m = first_lanes(n - i);
    const __m256 g = _mm256_maskload_ps(gate + i, m);
    const __m256 e = exp_ps(_mm256_sub_ps(_mm256_setzero_ps(), g));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, e));
    _mm256_maskstore_ps(y + i, m, _mm256_mul_ps(silu, _mm256_maskload_ps(up + i, m)));
  }
}

void rope(float* head, const float* cos, const float* sin, int rot, bool half_layout) {
  const int half = rot / 2;
  if (half_layout) {
    for (int i = 0; i < half; i += 8) {
      const __m256i m = first_lanes(half - i);
      const __m256 c = _mm256_maskload_ps(cos + i, m);
      const __m256 s = _mm256_maskload_ps(sin + i, m);
      const __m256 a = _mm256_maskload_ps(head + i, m);
      const __m256 b = _mm256_maskload_ps(head + half + i, m);
      _mm256_maskstore_ps(head + i, m, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
      _mm256_maskstore_ps(head + half + i, m, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
    return;
  }
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  for (int i = 0; i < half; i += 4) {
    const int pairs = half - i < 4 ? half - i : 4;
    const __m256i m = first_lanes(2 * pairs);
    const __m256i pm = first_lanes(pairs);
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_maskload_ps(cos + i, pm), twice);
    const __m256 s = _mm256_permutevar8x32_ps(_mm256_maskload_ps(sin + i, pm), twice);
    const __m256 v = _mm256_maskload_ps(head + 2 * i, m);
    const __m256 swapped = _mm256_permute_ps(v, 0xb1);
    _mm256_maskstore_ps(head + 2 * i, m, _mm256_fmaddsub_ps(v, c, _mm256_mul_ps(swapped, s)));
  }
}

void exp_values(const float* x, int n, float* y) {
  for (int i = 0; i < n; i += 8) {
    const __m256i m = first_lanes(n - i);
    _mm256_maskstore_ps(y + i, m, exp_ps(_mm256_maskload_ps(x + i, m)));
  }
}

}  // namespace pagefold::kernels::avx2
