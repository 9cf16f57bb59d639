// GPTQ checkpoints (AutoGPTQ, GPTQModel): integers of 2, 3, 4 or 8 bits packed along the inputs.
//   qweight int32 [n_in * bits / 32][n_out], qzeros int32 [groups][n_out * bits / 32],
//   scales [groups][n_out], g_idx int32 [n_in]: the group of each input
// Both packings are one little-endian bit stream: 3-bit values straddle words (32 in three words).
// value = (q - zero) * scale. The first version of the format stores zero - 1, cut to the bits; a
// zero of 0 is then stored as all ones, and reading it back adds 1 and cuts again, which is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "formats/tensor_file.h"

namespace pagefold {

struct GptqMatrix {
  const std::byte* qweight = nullptr;
  const std::byte* qzeros = nullptr;
  const std::byte* scales = nullptr;
  TensorType scale_type = TensorType::F16;  // F16, BF16 or F32
  int bits = 4;
  bool zeros_minus_one = true;  // checkpoint_format gptq (v1); false: gptq_v2
  int64_t n_in = 0, n_out = 0;  // both multiples of 32 / gcd(32, bits)
  int64_t groups = 0;
};

// Integers of `n` outputs from `first` on: q[n][n_in]. 8 bits: q - 128; else q itself.
void gptq_columns(const GptqMatrix& m, int64_t first, int64_t n, int8_t* q);
// scale[groups], zero[groups] of one output; 8 bits: zero - 128.
void gptq_scales(const GptqMatrix& m, int64_t out, float* scale, float* zero);

// The order of inputs that puts the groups of `group` inputs each side by side: the stable sort of
// the inputs by g_idx. Empty where g_idx is k / group already. Errors: an index out of range, a
// group that does not have `group` inputs.
Result<std::vector<int32_t>> group_order(const std::byte* g_idx, int64_t n_in, int64_t group);

}  // namespace pagefold
