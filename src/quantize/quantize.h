// Makes a Hugging Face folder of a model, in 16 or 32 bit or quantised, in the formats that
// Transformers and vLLM read. Layer by layer: beside the activations of the calibration text only
// one layer is ever held.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "quantize/kld_meter.h"
#include "quantize/quantize_options.h"

namespace pagefold {

struct QuantizeReport {
  std::string output, method, dtype;
  uint64_t source_bytes = 0, bytes = 0;  // of tensor data
  size_t tensors = 0;
  double bits_per_weight = 0;  // of all tensors
  double linear_bits = 0;      // of the layers' linears: scales and zero points included
  int64_t calibration_tokens = 0;
  std::optional<KldReport> kld;  // of the written weights against the source's, on the exact path
};

// Errors leave nothing under the output's name.
Result<QuantizeReport> quantize(const QuantizeOptions& options);

}  // namespace pagefold
