// What a Hugging Face checkpoint says of its KV cache: the type it was calibrated for and the fp8
// scales of every layer.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "base/kv_format.h"
#include "formats/tensor_file.h"

namespace pagefold {

// kv_cache_scheme of the quantization_config (or compression_config): null or absent, or
// {num_bits 8, type float, ...}. Other schemes are refused: they would be read wrongly.
Status read_kv_scheme(const Json& config, std::string_view where, KvRecipe& recipe);

// The scalars model.layers.N.self_attn.[...]{k_scale, v_scale}, {k,v}_proj.output_scale and the old
// kv_scale (of both). A number that is not positive is a placeholder; where one of the two is
// missing, the other serves both; where both are, 1. Fills the recipe's scales only if there is
// any. Errors: a tensor that is not one finite number of a plain type (scales a head).
Status read_kv_scales(std::span<const TensorInfo> tensors, int n_layers, KvRecipe& recipe);

// A tensor below self_attn that holds a scale of cached keys or values, or of queries or
// probabilities, which are not quantised here.
bool is_attention_scale(std::string_view name);

}  // namespace pagefold
