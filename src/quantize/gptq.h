// GPTQ (Frantar et al., arXiv 2210.17323): columns are rounded one after the other, and what each
// rounding loses on the calibration inputs is taken up by the columns still to come.
#pragma once

#include <vector>

#include "quantize/int_weights.h"
#include "quantize/linear_algebra.h"

namespace pagefold {

struct GptqOptions {
  IntRule rule{.bits = 4, .symmetric = true, .least_zero = 1};
  int64_t group = 128;
  bool act_order =
      false;           // columns of the largest inputs first (desc_act); groups follow the order
  double damp = 0.01;  // share of the mean diagonal that is added to the diagonal
};

// What all linears with the same input share: the order of columns and the factor of the inverse.
struct GptqInputs {
  std::vector<int32_t> order;     // [k] column at each place
  std::vector<float> factor;      // [k][k], of the ordered columns
  std::vector<float> importance;  // [k] diagonal of the products, ordered
};
// products: sum over calibration rows of x^T x, [k][k], both triangles. Inputs that were never
// anything but 0 do not disturb the others.
Result<GptqInputs> gptq_inputs(std::vector<float> products, int64_t k, const GptqOptions& options,
                               const LinearAlgebra& math);
// g_idx is set with act_order.
IntWeights gptq(const Matrix& w, const GptqInputs& inputs, const GptqOptions& options,
                const LinearAlgebra& math);

}  // namespace pagefold
