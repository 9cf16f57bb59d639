// Makes a Hugging Face folder of a model, in 16 or 32 bit or quantised, in the formats that
// Transformers and vLLM read. Layer by layer: beside the activations of the calibration text only
// one layer is ever held.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace pagefold {

struct QuantizeOptions {
  std::string model;   // a .gguf file or a folder
  std::string output;  // the folder to make
  bool force = false;  // the output folder may hold a model, which is replaced
  std::string method = "none";
  // Of what is not quantised. auto: the source's own 16-bit type, else bfloat16.
  std::string dtype = "auto";
  uint64_t max_shard_bytes = 5'000'000'000;
  // Steps done and in all; may be empty.
  std::function<void(uint64_t, uint64_t)> progress;
};

struct QuantizeReport {
  std::string output, method, dtype;
  uint64_t source_bytes = 0, bytes = 0;  // of tensor data
  size_t tensors = 0;
  double bits_per_weight = 0;  // of all tensors
};

Result<QuantizeReport> quantize(const QuantizeOptions& options);

}  // namespace pagefold
