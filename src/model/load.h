// From a path to a model that can run: a .gguf file or a Hugging Face folder.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/dtype_choice.h"
#include "model/forward.h"
#include "model/quant/activation_choice.h"

namespace pagefold {

// The open files of a model, before any weight is read.
struct ModelFiles {
  std::filesystem::path path;
  std::optional<GgufFile> gguf;  // exactly one of gguf and safetensors
  std::optional<SafetensorsSet> safetensors;
  ModelConfig config;
  QuantConfig quant;  // how the weights are stored; choose_quantization may replace it

  std::span<const TensorInfo> tensors() const {
    return gguf ? gguf->tensors() : safetensors->tensors();
  }
  Naming naming() const { return gguf ? Naming::gguf : Naming::hugging_face; }
};

// Reads and checks headers and configuration.
Result<ModelFiles> open_model(const std::filesystem::path& path);

// The quantization_config of a folder's config.json, else of the file that old quantisers write.
Result<QuantConfig> read_quant_config(const std::filesystem::path& folder, const Json& config);

// For choose_dtype: StoredTypes::tensors, and all of them.
std::optional<DType> stored_matrix_type(std::span<const TensorInfo> tensors);
StoredTypes stored_types(const ModelFiles& files);

// Each once.
std::vector<TensorType> tensor_types(std::span<const TensorInfo> tensors);

// int8 inputs that a format cannot be multiplied with: the error that loading would give, at once.
Status check_activations(const ModelFiles& files, Activations wanted);

// For measurements: puts a backend around the real one before weights are loaded into it.
using WrapBackend = std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)>;

struct NetworkOptions {
  CpuBackendOptions backend;
  WrapBackend wrap;  // empty: none
  std::function<void(uint64_t, uint64_t)> progress;
};
Result<std::unique_ptr<TransformerModel>> load_network(const ModelFiles& files,
                                                       const NetworkOptions& options);

}  // namespace pagefold
