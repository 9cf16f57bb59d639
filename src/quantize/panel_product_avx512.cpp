#include <immintrin.h>

#include "quantize/panel_product.h"

namespace pagefold {

void panel_product_avx512(int64_t k, const float* a, const float* b, float* c, int64_t ldc) {
  __m512 sum[kPanelA][2];
  for (int i = 0; i < kPanelA; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
  for (int64_t r = 0; r < k; ++r) {
    const __m512 b0 = _mm512_loadu_ps(b + r * kPanelB);
    const __m512 b1 = _mm512_loadu_ps(b + r * kPanelB + 16);
    for (int i = 0; i < kPanelA; ++i) {
      const __m512 x = _mm512_set1_ps(a[r * kPanelA + i]);
      sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
      sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
    }
  }
  for (int i = 0; i < kPanelA; ++i) {
    float* to = c + i * ldc;
    _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sum[i][0]));
    _mm512_storeu_ps(to + 16, _mm512_add_ps(_mm512_loadu_ps(to + 16), sum[i][1]));
  }
}

}  // namespace pagefold
