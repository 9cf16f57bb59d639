#include "kernels/simd_avx2.h"

namespace pagefold::kernels::avx2 {
namespace {

PF_ISA_INLINE int reduce_max(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}
PF_ISA_INLINE int reduce_add(__m256i v) {
  __m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}

}  // namespace

void matmul(const MatmulArgs& a) {
  check_matmul_args(a);
  if (!is_quantised(a.weights->shape.kind)) return matmul_float(a);
  if (a.input == InputKind::i8x2) return matmul_i8(doubled(a));
  return a.input == InputKind::i8 ? matmul_i8(a) : matmul_dequant(a);
}

// The operations of the scalar version, so the same bits.
void quantize_rows(const float* x, int64_t ldx, int rows, int n, const QuantizedRows& out,
                   float* rest) {
  const __m256i abs_mask = _mm256_set1_epi32(0x7fffffff);
  for (int r = 0; r < rows; ++r) {
    for (int b = 0; b < n / kBlockInputs; ++b) {
      const float* v = x + r * ldx + static_cast<int64_t>(b) * kBlockInputs;
      const int64_t at = static_cast<int64_t>(r) * (n / kBlockInputs) + b;
      __m256i bits = _mm256_setzero_si256();
      for (int i = 0; i < 4; ++i) {
        const __m256i u = _mm256_castps_si256(_mm256_loadu_ps(v + i * 8));
        bits = _mm256_max_epi32(bits, _mm256_and_si256(u, abs_mask));
      }
      const int max_bits = reduce_max(bits);
      const float max = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(max_bits)));
      const bool finite = max_bits < 0x7f800000;
      float inverse = 0.0f, scale = 0.0f;
      if (!finite) {
        scale = __builtin_nanf("");
      } else if (max >= 0x1p-120f) {
        inverse = 127.0f / max;
        scale = max / 127.0f;
      }
      __m256i q[4];
      for (int i = 0; i < 4; ++i) {
        q[i] =
            _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(v + i * 8), _mm256_set1_ps(inverse)));
        if (!finite) q[i] = _mm256_setzero_si256();
        if (rest == nullptr) continue;
        const __m256 lost = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(q[i]), _mm256_set1_ps(scale),
                                             _mm256_loadu_ps(v + i * 8));
        _mm256_storeu_ps(rest + at * kBlockInputs + i * 8, lost);
      }
      // The packs work within 128-bit lanes; the permutation puts the fours back in order.
      const __m256i packed =
          _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
      const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q + at * kBlockInputs),
                          _mm256_permutevar8x32_epi32(packed, order));
      out.scale[at] = scale;
      out.sums[at * 2] = reduce_add(_mm256_add_epi32(q[0], q[1]));
      out.sums[at * 2 + 1] = reduce_add(_mm256_add_epi32(q[2], q[3]));
    }
  }
}

}  // namespace pagefold::kernels::avx2
