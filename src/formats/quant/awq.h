// AWQ checkpoints, GEMM layout (AutoAWQ): 4-bit integers packed along the outputs.
//   qweight int32 [n_in][n_out / 8], qzeros int32 [n_in / group][n_out / 8],
//   scales [n_in / group][n_out]
// A word holds 8 neighbouring outputs; output j of the 8 is nibble 0, 4, 1, 5, 2, 6, 3, 7 (j).
// value = (q - zero) * scale, zeros as they are stored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/tensor_file.h"

namespace pagefold {

struct AwqMatrix {
  const std::byte* qweight = nullptr;
  const std::byte* qzeros = nullptr;
  const std::byte* scales = nullptr;
  TensorType scale_type = TensorType::F16;  // F16, BF16 or F32
  int64_t n_in = 0, n_out = 0, group = 0;   // n_out: a multiple of 8; group divides n_in
};

// Integers of `n` outputs from `first` on (both multiples of 8): q[n][n_in], 0..15.
void awq_columns(const AwqMatrix& m, int64_t first, int64_t n, int8_t* q);
// scale[n_in / group], zero[n_in / group] of one output.
void awq_scales(const AwqMatrix& m, int64_t out, float* scale, float* zero);

}  // namespace pagefold
