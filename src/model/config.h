// The numbers that define a decoder-only transformer, read from GGUF metadata or a Hugging Face
// config.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/kv_format.h"
#include "base/result.h"
#include "formats/gguf.h"
#include "model/architectures.h"
#include "model/model.h"

namespace pagefold {

enum class RopeKind : uint8_t { standard, linear, llama3, yarn };

// Rotary position embedding (Su et al., arXiv 2104.09864) and its context extensions.
struct RopeConfig {
  RopeKind kind = RopeKind::standard;
  double theta = 10000.0;
  int rot = 0;                                           // rotated leading dims of a head
  double factor = 1.0;                                   // linear, llama3, yarn
  double original_context = 0;                           // llama3, yarn
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn (arXiv 2309.00071)
  double attention_factor = 0;  // yarn: scale of cos and sin; 0: 0.1 ln(factor) + 1
  bool truncate = true;         // yarn: whole dims bound the ramp
  std::vector<float> divisors;  // [rot / 2] from the file (GGUF rope_freqs); empty: none
};

struct ModelConfig {
  const Architecture* arch = nullptr;
  std::string arch_name;  // as the file writes it
  ModelShape shape;
  int64_t ffn = 0;
  double rms_eps = 1e-5;
  RopeConfig rope;
  bool rope_half_layout = true;
  bool tied_head = false;       // the output head is the token embedding
  bool attention_bias = false;  // q, k, v have a bias
  bool output_bias = false;     // so has the attention's output
  std::string stored_dtype;     // "float16", ... from the file; empty: not said
  KvRecipe kv;                  // what the checkpoint says of its cache (kv_recipe.h)
};

// Both refuse what this engine does not run, by name, and check all numbers against each other.
Result<ModelConfig> config_from_gguf(const GgufFile& file);
Result<ModelConfig> config_from_hf(const Json& config, std::string_view where);
// Shared last step: divisibility, ranges, defaults.
Status validate_config(ModelConfig& config, std::string_view where);

}  // namespace pagefold
