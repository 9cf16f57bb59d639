#include "kernels/simd_avx512.h"

namespace pagefold::kernels::avx512 {

void matmul(const MatmulArgs& a) {
  check_matmul_args(a);
  if (!is_quantised(a.weights->shape.kind)) return matmul_float(a);
  if (a.input == InputKind::i8x2) return matmul_i8(doubled(a));
  return a.input == InputKind::i8 ? matmul_i8(a) : matmul_dequant(a);
}

// The operations of the scalar version, so the same bits.
void quantize_rows(const float* x, int64_t ldx, int rows, int n, const QuantizedRows& out,
                   float* rest) {
  const __m512i abs_mask = _mm512_set1_epi32(0x7fffffff);
  for (int r = 0; r < rows; ++r) {
    for (int b = 0; b < n / kBlockInputs; ++b) {
      const float* v = x + r * ldx + static_cast<int64_t>(b) * kBlockInputs;
      const int64_t at = static_cast<int64_t>(r) * (n / kBlockInputs) + b;
      const __m512 v0 = _mm512_loadu_ps(v);
      const __m512 v1 = _mm512_loadu_ps(v + 16);
      const int max_bits = _mm512_reduce_max_epi32(
          _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(v0), abs_mask),
                           _mm512_and_si512(_mm512_castps_si512(v1), abs_mask)));
      const float max = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(max_bits)));
      float inverse = 0.0f, scale = 0.0f;
      __mmask16 finite = 0xffff;
      if (max_bits >= 0x7f800000) {
        finite = 0;
        scale = __builtin_nanf("");
      } else if (max >= 0x1p-120f) {
        inverse = 127.0f / max;
        scale = max / 127.0f;
      }
      const __m512 f = _mm512_set1_ps(inverse);
      const __m512i q0 = _mm512_maskz_cvtps_epi32(finite, _mm512_mul_ps(v0, f));
      const __m512i q1 = _mm512_maskz_cvtps_epi32(finite, _mm512_mul_ps(v1, f));
      auto* q = reinterpret_cast<__m128i*>(out.q + at * kBlockInputs);
      _mm_storeu_si128(q, _mm512_cvtsepi32_epi8(q0));
      _mm_storeu_si128(q + 1, _mm512_cvtsepi32_epi8(q1));
      if (rest != nullptr) {
        const __m512 s = _mm512_set1_ps(scale);
        float* lost = rest + at * kBlockInputs;
        _mm512_storeu_ps(lost, _mm512_fnmadd_ps(_mm512_cvtepi32_ps(q0), s, v0));
        _mm512_storeu_ps(lost + 16, _mm512_fnmadd_ps(_mm512_cvtepi32_ps(q1), s, v1));
      }
      out.scale[at] = scale;
      out.sums[at * 2] = _mm512_reduce_add_epi32(q0);
      out.sums[at * 2 + 1] = _mm512_reduce_add_epi32(q1);
    }
  }
}

}  // namespace pagefold::kernels::avx512
