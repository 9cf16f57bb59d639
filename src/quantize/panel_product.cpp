#include "quantize/panel_product.h"

namespace pagefold {

void panel_product_scalar(int64_t k, const float* a, const float* b, float* c, int64_t ldc) {
  for (int i = 0; i < kPanelA; ++i) {
    float sum[kPanelB] = {};
    for (int64_t r = 0; r < k; ++r) {
      const float x = a[r * kPanelA + i];
      for (int j = 0; j < kPanelB; ++j) sum[j] += x * b[r * kPanelB + j];
    }
    for (int j = 0; j < kPanelB; ++j) c[i * ldc + j] += sum[j];
  }
}

}  // namespace pagefold
