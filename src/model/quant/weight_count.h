// What the tensors of a quantised checkpoint stand for, without reading them: for `inspect`.
#pragma once

#include <span>

#include "formats/tensor_file.h"
#include "model/quant/quant_config.h"

namespace pagefold {

// Weights that a tensor holds: its elements, or those packed into its words; 0 for scales, zero
// points and other side data.
int64_t weights_in(const TensorInfo& tensor, const QuantConfig& quant);

}  // namespace pagefold
