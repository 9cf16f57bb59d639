// How a checkpoint's weights are stored: the quantization_config of its config.json (or
// compression_config, quantize_config.json, quant_config.json), and what --quantization asks for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/quant/name_pattern.h"

namespace pagefold {

enum class QuantMethod : uint8_t { none, gguf, awq, gptq, compressed_tensors, fp8, bitsandbytes };
std::string_view quant_method_name(QuantMethod method);
// Lower or upper case; vLLM's names of kernels count as the format they read: gptq_marlin is gptq.
std::optional<QuantMethod> find_quant_method(std::string_view name);

// How one linear layer is stored, or what loading makes of it.
enum class WeightLayout : uint8_t {
  plain,      // X.weight in 16 or 32 bits, or a GGUF type
  awq,        // X.qweight, X.qzeros, X.scales, packed along the outputs
  gptq,       // the same names, packed along the inputs; X.g_idx
  ct_packed,  // X.weight_packed, X.weight_scale, X.weight_zero_point, X.weight_g_idx
  int8,       // X.weight int8, X.weight_scale
  fp8,        // X.weight e4m3, X.weight_scale or X.weight_scale_inv
  bnb4,       // X.weight uint8, X.weight.absmax ...
  bnb8,       // X.weight int8, X.SCB
  to_fp8,     // plain in the file, quantised while loading
  to_nf4,
};

struct WeightScheme {
  WeightLayout layout = WeightLayout::plain;
  int bits = 0;                 // of awq, gptq, ct_packed
  int64_t group = -1;           // inputs a scale; -1: a whole row, or as the scales' shape says
  bool symmetric = false;       // ct_packed, int8: no zero points in the file
  bool act_order = false;       // gptq, ct_packed: groups follow g_idx, which must be there
  bool zeros_minus_one = true;  // gptq: v1
  int64_t block_out = 0, block_in = 0;  // fp8: weights a scale; 0: as the scales' shape says
  bool int8_inputs = false;             // the format means int8 activations (W8A8)
  bool maybe_plain = false;             // the output head: writers leave it alone without saying so
};

struct QuantConfig {
  QuantMethod method = QuantMethod::none;
  std::string where;    // "DIR/config.json: quantization_config"; empty: none
  WeightScheme scheme;  // of linear layers that nothing else is said of
  // The first rule that matches wins.
  struct Rule {
    std::vector<ModuleMatcher> targets;
    bool all_linear = false;
    WeightScheme scheme;
  };
  std::vector<Rule> rules;
  std::vector<ModuleMatcher> skipped;  // modules_to_not_convert, ignore: stay in --dtype
  std::shared_ptr<PatternWork> work = std::make_shared<PatternWork>();  // of all matchers

  // module: "model.layers.0.self_attn.q_proj", "lm_head". Errors: a pattern that takes too long.
  Result<WeightScheme> scheme_of(std::string_view module) const;
  // "awq, 4 bit, groups of 128"; "none".
  std::string description() const;
  bool quantises_at_load() const {
    return scheme.layout == WeightLayout::to_fp8 || scheme.layout == WeightLayout::to_nf4;
  }
};

// config: an object of a config.json. Where it has none of the fields: method none.
Result<QuantConfig> quant_config_from_hf(const Json& config, std::string_view where);
// One such object, with its method named inside or by `fallback`.
Result<QuantConfig> parse_quant_config(const Json& object, std::string_view where,
                                       std::string_view fallback = {});

// What --quantization makes of a checkpoint: auto is the checkpoint's own; fp8 and bitsandbytes
// quantise an unquantised one while it loads. Errors: an unknown name, a contradiction.
Result<QuantConfig> choose_quantization(const std::string& word, QuantConfig checkpoint);

}  // namespace pagefold
