// AWQ (Lin et al., arXiv 2306.00978): inputs that are large on calibration text get finer steps.
// The columns of a weight are multiplied by scales which the operation before them is divided by,
// so that the layer computes the same, and then rounded to 4 bits.
#pragma once

#include <span>
#include <vector>

#include "quantize/int_weights.h"
#include "quantize/layer.h"
#include "quantize/linear_algebra.h"

namespace pagefold {

struct AwqOptions {
  int64_t group = 128;
  bool clip = true;         // search the range of each group, too
  int steps = 10;           // exponents tried of each family of scales
  int64_t most_rows = 256;  // outputs of a matrix that the loss of a scale is measured on
};

// Scales [k] for linears with the same input, those with the least squared error of the outputs on
// the calibration inputs; all 1 where none is better than that. tied: scales of inputs i and j are
// equal where tied[i] == tied[j] (empty: none are).
std::vector<float> awq_scales(std::span<const Matrix* const> linears, const LinearInputs& inputs,
                              std::span<const int32_t> tied, const AwqOptions& options,
                              const LinearAlgebra& math);

// 4-bit codes of w, whose columns carry `scales` already. clip: see above.
IntWeights awq_round(const Matrix& w, std::span<const float> scales, const LinearInputs& inputs,
                     bool clip, const AwqOptions& options, const LinearAlgebra& math);

// Searches and applies the scales of a whole layer: to norms, v (rows, each with all query heads
// that read it), up (rows) on one side and the columns of the seven linears on the other. Returns
// the scales of the four input points.
std::array<std::vector<float>, kInputPoints> awq_scale_layer(HostLayer& layer, int head_dim,
                                                             const LayerInputs& inputs,
                                                             const AwqOptions& options,
                                                             const LinearAlgebra& math);

}  // namespace pagefold
