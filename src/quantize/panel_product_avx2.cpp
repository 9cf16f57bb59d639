#include <immintrin.h>

#include "quantize/panel_product.h"

namespace pagefold {

// Two halves of 4 x 16: eight sums fit the registers.
void panel_product_avx2(int64_t k, const float* a, const float* b, float* c, int64_t ldc) {
  for (int half_a = 0; half_a < kPanelA; half_a += 4) {
    for (int half_b = 0; half_b < kPanelB; half_b += 16) {
      __m256 sum[4][2];
      for (int i = 0; i < 4; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
      for (int64_t r = 0; r < k; ++r) {
        const __m256 b0 = _mm256_loadu_ps(b + r * kPanelB + half_b);
        const __m256 b1 = _mm256_loadu_ps(b + r * kPanelB + half_b + 8);
        for (int i = 0; i < 4; ++i) {
          const __m256 x = _mm256_broadcast_ss(a + r * kPanelA + half_a + i);
          sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
          sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
        }
      }
      for (int i = 0; i < 4; ++i) {
        float* to = c + (half_a + i) * ldc + half_b;
        _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), sum[i][0]));
        _mm256_storeu_ps(to + 8, _mm256_add_ps(_mm256_loadu_ps(to + 8), sum[i][1]));
      }
    }
  }
}

}  // namespace pagefold
