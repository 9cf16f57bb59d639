// From a path to a model that can run: a .gguf file or a Hugging Face folder.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/forward.h"
#include "model/quant/kv_scales.h"

namespace pagefold {

// The open files of a model, before any weight is read.
struct ModelFiles {
  std::filesystem::path path;
  std::optional<GgufFile> gguf;  // exactly one of gguf and safetensors
  std::optional<SafetensorsSet> safetensors;
  ModelConfig config;
  QuantConfig quant;   // how the weights are stored; choose_quantization may replace it
  KvScales kv_scales;  // of an fp8 cache

  std::span<const TensorInfo> tensors() const {
    return gguf ? gguf->tensors() : safetensors->tensors();
  }
  Naming naming() const { return gguf ? Naming::gguf : Naming::hugging_face; }
};

// Reads and checks headers and configuration.
Result<ModelFiles> open_model(const std::filesystem::path& path);

// The 16-bit type of the unquantised tensors, bfloat16 where there is none (block types, float32).
DType natural_dtype(const ModelFiles& files);

struct NetworkOptions {
  CpuBackendOptions backend;
  std::function<void(uint64_t, uint64_t)> progress;
};
Result<std::unique_ptr<TransformerModel>> load_network(const ModelFiles& files,
                                                       const NetworkOptions& options);

}  // namespace pagefold
