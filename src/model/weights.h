// A model's weights on a device, and the names they have in files. Every tensor of a file is either
// used or refused.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "formats/tensor_file.h"
#include "model/config.h"
#include "model/quant/quant_config.h"

namespace pagefold {

struct LayerWeights {
  VectorId attention_norm, ffn_norm, q_norm, k_norm;
  MatrixId qkv, attention_out, gate_up, down;
  VectorId qkv_bias, out_bias;
};

struct ModelWeights {
  MatrixId embedding, head;
  VectorId final_norm;
  std::vector<LayerWeights> layers;
};

enum class Naming : uint8_t { gguf, hugging_face };

// progress: called with bytes done and bytes in all.
Result<ModelWeights> load_weights(Backend& backend, const ModelConfig& config,
                                  const QuantConfig& quant, std::span<const TensorInfo> tensors,
                                  Naming naming,
                                  const std::function<void(uint64_t, uint64_t)>& progress);

}  // namespace pagefold
