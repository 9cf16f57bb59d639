// The tensors of one linear layer of a quantised checkpoint, as the rows that the backend packs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/quant/quant_config.h"
#include "model/tensor_source.h"

namespace pagefold {

// A tensor by its name, or null. The loader marks what is found as used.
using FindTensor = std::function<const TensorInfo*(const std::string& name)>;

// n_out, n_in: of the layer. Errors name the tensor that is missing, has a wrong shape or type, or
// holds what cannot be. `where` (the config) is named beside missing ones.
// A layer of a quantised scheme that the file holds as a plain X.weight is an error, unless the
// scheme is maybe_plain.
Result<std::unique_ptr<LinearSource>> make_linear_source(const WeightScheme& scheme,
                                                         std::string_view where,
                                                         const std::string& module, int64_t n_out,
                                                         int64_t n_in, const FindTensor& find);

}  // namespace pagefold
