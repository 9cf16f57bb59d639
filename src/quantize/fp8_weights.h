// 8-bit float weights (formats/quant/fp8.h): value = decode(code) * scale.
#pragma once

#include <cstdint>
#include <vector>

#include "quantize/int_weights.h"

namespace pagefold {

enum class Fp8Scales : uint8_t { tensor, channel, block };

struct Fp8Weights {
  int64_t rows = 0, cols = 0;
  int64_t scale_rows = 0, scale_cols = 0;  // [1, 1], [rows, 1] or [ceil(rows / b), ceil(cols / b)]
  int64_t block_rows = 0, block_cols = 0;  // values that share a scale
  std::vector<uint8_t> codes;              // [rows][cols]
  std::vector<float> scale;                // [scale_rows][scale_cols]
};
// Scale: largest magnitude / 448 (1 where all are zero). block: of Fp8Scales::block.
Fp8Weights quantize_fp8(const Matrix& w, Fp8Scales scales, int64_t block = 128);
Matrix fp8_values(const Fp8Weights& w);
// weight and weight_scale (one number, or [rows, 1]), or weight_scale_inv for blocks, which readers
// multiply by like the others.
std::vector<OutTensor> pack_fp8(const Fp8Weights& w, Fp8Scales scales);

}  // namespace pagefold
