// What a model file or folder says about itself, gathered for `inspect` without loading it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/kv_format.h"
#include "base/result.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/dtype_choice.h"
#include "model/quant/quant_config.h"

namespace pagefold {

struct TensorLine {
  std::string name, type;
  std::vector<int64_t> shape;  // outermost first
  uint64_t bytes = 0;
  int64_t elements = 0;
  int64_t weights = 0;  // what they stand for: packed ones are more, scales are none
};

struct ModelDescription {
  std::string path, format;  // "gguf" or "safetensors"
  std::string architecture;
  // 0 or empty: the file does not say.
  int64_t n_layers = 0, n_heads = 0, hidden = 0, ffn = 0, vocab_size = 0, context_length = 0;
  int64_t key_dim = 0, value_dim = 0;  // of a head
  std::vector<int64_t> kv_heads;       // [n_layers]
  int64_t sliding_window = 0;
  double rope_base = 0;
  StoredTypes stored;
  KvRecipe kv;
  std::vector<TensorType> types;                              // of the tensors, each once
  QuantConfig quant;                                          // of the weights
  std::string quant_problem;                                  // why they cannot be read, or empty
  std::vector<std::pair<std::string, std::string>> metadata;  // key, short form of the value
  std::vector<TensorLine> tensors;
  std::string chat_template;

  uint64_t weight_bytes() const;
  int64_t parameters() const;
  // What the checkpoint's quantisation is called, else the type that holds the most bytes.
  std::string weight_format() const;
  double bits_per_weight() const;
  // Keys and values of one token over all layers and KV heads, scales included; 0 when the dims are
  // not known.
  uint64_t kv_bytes_per_token(const KvFormat& cache) const;
};

Result<ModelDescription> describe_gguf(const GgufFile& file, const std::string& path);
// config: config.json, tokenizer_config: tokenizer_config.json or null.
Result<ModelDescription> describe_folder(const Json& config, const Json& tokenizer_config,
                                         const SafetensorsSet& weights, const std::string& path,
                                         Result<QuantConfig> quant = QuantConfig());
// Opens either.
Result<ModelDescription> describe_model(const std::string& path);

}  // namespace pagefold
