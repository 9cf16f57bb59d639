// The scales of cached keys and values that checkpoints carry: value = code * scale, one a layer.
//   X.self_attn.k_scale, v_scale; attn.k_scale, attn.v_scale; k_proj.k_scale, v_proj.v_scale;
//   k_proj.output_scale, v_proj.output_scale; kv_scale (old), for both
// below model.layers.N.self_attn.
#pragma once

#include <string_view>
#include <vector>

#include "model/quant/linear_source.h"

namespace pagefold {

struct KvScales {
  std::vector<float> k, v;  // [n_layers]; empty: the checkpoint has none
};
// Of each layer: both positive: these; one of them: both; neither, or negative placeholders: 1.
// Errors: a scale that is no single finite number, or 0.
Result<KvScales> read_kv_scales(const FindTensor& find, int n_layers);

// A tensor that holds a scale of cached keys or values, queries or probabilities.
bool is_cache_scale(std::string_view name);

}  // namespace pagefold
