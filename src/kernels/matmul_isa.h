// The matmul and element-wise functions of each instruction set; the table (kernels.h) is filled
// from them.
#pragma once

#include "kernels/kernels.h"

namespace pagefold::kernels {

// exp_values is what silu_mul uses inside; it is declared so that tests can measure it.
#define PAGEFOLD_DENSE_FUNCTIONS                                                              \
  void matmul(const MatmulArgs& args);                                                        \
  void quantize_rows(const float* x, int64_t ldx, int rows, int n, const QuantizedRows& out); \
  void to_bf16(const float* x, int64_t n, uint16_t* y);                                       \
  void round_to(DType dtype, float* x, int64_t n);                                            \
  void rms_norm(const float* x, const float* gamma, float eps, int n, float* y);              \
  void silu_mul(const float* gate, const float* up, int n, float* y);                         \
  void rope(float* head, const float* cos, const float* sin, int rot, bool half_layout);      \
  void exp_values(const float* x, int n, float* y);

namespace scalar {
PAGEFOLD_DENSE_FUNCTIONS
}
namespace avx2 {
PAGEFOLD_DENSE_FUNCTIONS
}
namespace avx512 {
PAGEFOLD_DENSE_FUNCTIONS
}

#undef PAGEFOLD_DENSE_FUNCTIONS

}  // namespace pagefold::kernels
