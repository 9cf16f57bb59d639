// The ways to write a layer's linears: one class a method.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "quantize/int_weights.h"
#include "quantize/layer.h"
#include "quantize/linear_algebra.h"
#include "quantize/quantize_options.h"

namespace pagefold {

class WeightMethod {
 public:
  virtual ~WeightMethod() = default;
  virtual bool needs_inputs() const { return false; }
  // quantization_config of config.json; null: none.
  virtual Json config() const = 0;
  virtual int tensors_per_linear() const = 0;
  // Whether the method can hold a matrix of this shape; the message leaves the name to the caller.
  virtual Status check(int64_t rows, int64_t cols) const = 0;
  // Hands out the tensors of each linear, by module name within the layer, and leaves in `layer`
  // the values that a reader makes of them (norms are not rounded yet).
  using Emit = std::function<Status(const std::string& module, std::vector<OutTensor> tensors)>;
  virtual Status quantize(HostLayer& layer, const LayerInputs& inputs, const LinearAlgebra& math,
                          const Emit& emit) = 0;
};

// dtype: of what is not quantised. Unknown names list the known ones; widths that no group divides
// are an error.
Result<std::unique_ptr<WeightMethod>> make_weight_method(const std::string& name,
                                                         const MethodOptions& options, DType dtype,
                                                         const ModelConfig& config);

}  // namespace pagefold
