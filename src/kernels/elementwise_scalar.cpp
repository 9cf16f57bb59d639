#include <cmath>

#include "base/half.h"
#include "kernels/matmul_isa.h"

namespace pagefold::kernels::scalar {

void to_bf16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = f32_to_bf16(x[i]);
}

void round_to(DType dtype, float* x, int64_t n) {
  if (dtype == DType::bf16) {
    for (int64_t i = 0; i < n; ++i) x[i] = bf16_to_f32(f32_to_bf16(x[i]));
  } else if (dtype == DType::f16) {
    for (int64_t i = 0; i < n; ++i) x[i] = f16_to_f32(f32_to_f16(x[i]));
  }
}

void rms_norm(const float* x, const float* gamma, float eps, int n, float* y) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const auto r = static_cast<float>(1.0 / std::sqrt(sum / n + static_cast<double>(eps)));
  for (int i = 0; i < n; ++i) y[i] = x[i] * r * gamma[i];
}

void silu_mul(const float* gate, const float* up, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

void rope(float* head, const float* cos, const float* sin, int rot, bool half_layout) {
  const int half = rot / 2;
  for (int i = 0; i < half; ++i) {
    float& a = head[half_layout ? i : 2 * i];
    float& b = head[half_layout ? i + half : 2 * i + 1];
    const float x = a;
    a = x * cos[i] - b * sin[i];
    b = b * cos[i] + x * sin[i];
  }
}

void exp_values(const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = std::exp(x[i]);
}

}  // namespace pagefold::kernels::scalar
