#include <immintrin.h>

#include "kernels/matmul_isa.h"

namespace pagefold::kernels::avx512 {
namespace {

#define PF_ISA_INLINE __attribute__((always_inline)) inline

PF_ISA_INLINE __mmask16 first_lanes(int64_t n) {
  return n >= 16 ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << n) - 1);
}

// Integer rounding to nearest even, as f32_to_bf16: the hardware conversion flushes subnormals.
// The result is in the low 16 bits of each lane.
PF_ISA_INLINE __m512i bf16_bits(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
}

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2, exp(r) by its Taylor polynomial of
// degree 7 (the rest is below 2^-27). Overflow, underflow, subnormals and NaN come out as they
// should: the clamps keep n small and pass NaN on, vscalefps does the rest.
PF_ISA_INLINE __m512 exp_ps(__m512 x) {
  x = _mm512_min_ps(_mm512_set1_ps(100.0f), x);
  x = _mm512_max_ps(_mm512_set1_ps(-110.0f), x);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);  // ln 2 in two parts; n * the
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);      // first is exact
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
  return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), n);
}

}  // namespace

void to_bf16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = first_lanes(n - i);
    const __m512i v = bf16_bits(_mm512_maskz_loadu_ps(m, x + i));
    _mm256_mask_storeu_epi16(y + i, m, _mm512_cvtepi32_epi16(v));
  }
}

void round_to(DType dtype, float* x, int64_t n) {
  if (dtype == DType::f32) return;
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = first_lanes(n - i);
    const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
    const __m512 rounded =
        dtype == DType::bf16
            ? _mm512_castsi512_ps(_mm512_slli_epi32(bf16_bits(v), 16))
            : _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm512_mask_storeu_ps(x + i, m, rounded);
  }
}

// Value i is summed in lane i % 16 of accumulator i / 16 % 4.
void rms_norm(const float* x, const float* gamma, float eps, int n, float* y) {
  __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                   _mm512_setzero_ps()};
  for (int i = 0; i < n; i += 64) {
    for (int j = 0; j < 4 && i + j * 16 < n; ++j) {
      const __m512 v = _mm512_maskz_loadu_ps(first_lanes(n - i - j * 16), x + i + j * 16);
      sum[j] = _mm512_fmadd_ps(v, v, sum[j]);
    }
  }
  const float total = _mm512_reduce_add_ps(
      _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
  const __m128 mean = _mm_set_ss(total / static_cast<float>(n) + eps);
  const __m512 r = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(mean)));
  for (int i = 0; i < n; i += 16) {
    const __mmask16 m = first_lanes(n - i);
    const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), r);
    _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, gamma + i)));
  }
}

void silu_mul(const float* gate, const float* up, int n, float* y) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int i = 0; i < n; i += 16) {
    const __mmask16 m = first_lanes(n - i);
    const __m512 g = _mm512_maskz_loadu_ps(m, gate + i);
    const __m512 e = exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), g));
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, e));
    _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(m, up + i)));
  }
}

void rope(float* head, const float* cos, const float* sin, int rot, bool half_layout) {
  const int half = rot / 2;
  if (half_layout) {
    for (int i = 0; i < half; i += 16) {
      const __mmask16 m = first_lanes(half - i);
      const __m512 c = _mm512_maskz_loadu_ps(m, cos + i);
      const __m512 s = _mm512_maskz_loadu_ps(m, sin + i);
      const __m512 a = _mm512_maskz_loadu_ps(m, head + i);
      const __m512 b = _mm512_maskz_loadu_ps(m, head + half + i);
      _mm512_mask_storeu_ps(head + i, m, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
      _mm512_mask_storeu_ps(head + half + i, m, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
    }
    return;
  }
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  for (int i = 0; i < half; i += 8) {
    const int pairs = half - i < 8 ? half - i : 8;
    const __mmask16 m = first_lanes(2 * pairs);
    const auto pm = static_cast<__mmask16>((1u << pairs) - 1);
    const __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(pm, cos + i));
    const __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(pm, sin + i));
    const __m512 v = _mm512_maskz_loadu_ps(m, head + 2 * i);
    const __m512 swapped = _mm512_permute_ps(v, 0xb1);
    _mm512_mask_storeu_ps(head + 2 * i, m, _mm512_fmaddsub_ps(v, c, _mm512_mul_ps(swapped, s)));
  }
}

void exp_values(const float* x, int n, float* y) {
  for (int i = 0; i < n; i += 16) {
    const __mmask16 m = first_lanes(n - i);
    _mm512_mask_storeu_ps(y + i, m, exp_ps(_mm512_maskz_loadu_ps(m, x + i)));
  }
}

}  // namespace pagefold::kernels::avx512
