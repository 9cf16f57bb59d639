#include "calc/layers.h"

#include <algorithm>

namespace pagefold::calc {
namespace {

constexpr int64_t kMostTables = int64_t{1} << 30;  // layers x KV heads

Status in_range(const Model& m, std::string_view field, int64_t value, int64_t low,
                int64_t most = kMostDim) {
  if (value >= low && value <= most) return ok_status();
  return bad_input("{}: {} is {}, expected {} ... {}", m.id, field, value, low, most);
}

Status check_group(const Model& m, const LayerGroup& g) {
  PF_TRY(in_range(m, "layers", g.layers, 1));
  switch (g.kind) {
    case LayerKind::sliding:
    case LayerKind::chunked:
      PF_TRY(in_range(m, "window", g.window, 1, kMostWindow));
      [[fallthrough]];
    case LayerKind::full:
      PF_TRY(in_range(m, "KV heads", g.kv_heads, 1));
      PF_TRY(in_range(m, "head_dim", g.k_dim, 1));
      return in_range(m, "v_head_dim", g.v_dim, 1);
    case LayerKind::mla:
      PF_TRY(in_range(m, "kv_lora_rank", g.latent, 1));
      PF_TRY(in_range(m, "index_head_dim", g.index_dim, 0));
      PF_TRY(in_range(m, "heads", g.heads, 0));
      PF_TRY(in_range(m, "qk_nope_head_dim", g.nope, 0));
      PF_TRY(in_range(m, "v_head_dim", g.v_dim, 0));
      return in_range(m, "qk_rope_head_dim", g.rope, 0);
    case LayerKind::delta_net:
    case LayerKind::mamba2:
      PF_TRY(in_range(m, "key heads or groups", g.n_keys, 1));
      PF_TRY(in_range(m, "state size", g.k_size, 1));
      PF_TRY(in_range(m, "value heads", g.n_values, 1));
      PF_TRY(in_range(m, "value head dim", g.v_size, 1));
      return in_range(m, "conv kernel", g.conv_kernel, 1);
    case LayerKind::none:
      break;
  }
  return ok_status();
}

}  // namespace

std::string_view kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::full:
      return "full";
    case LayerKind::sliding:
      return "sliding";
    case LayerKind::chunked:
      return "chunked";
    case LayerKind::mla:
      return "mla";
    case LayerKind::delta_net:
      return "gated_delta_net";
    case LayerKind::mamba2:
      return "mamba2";
    case LayerKind::none:
      return "none";
  }
  return "?";
}

LayerGroup full_layers(int64_t layers, int64_t kv_heads, int64_t k_dim, int64_t v_dim) {
  LayerGroup g;
  g.layers = layers;
  g.kv_heads = kv_heads;
  g.k_dim = k_dim;
  g.v_dim = v_dim;
  return g;
}

LayerGroup windowed_layers(LayerKind kind, int64_t layers, int64_t kv_heads, int64_t k_dim,
                           int64_t v_dim, int64_t window) {
  LayerGroup g = full_layers(layers, kv_heads, k_dim, v_dim);
  g.kind = kind;
  g.window = window;
  return g;
}

LayerGroup draft_group(const Model& model) {
  LayerGroup out;
  for (const LayerGroup& g : model.groups) {
    if (g.grows() && !g.windowed()) out = g;
  }
  out.layers = out.grows() && (out.kv_heads > 0 || out.latent > 0) ? model.draft_layers : 0;
  return out;
}

Status check_model(const Model& m) {
  int64_t storing = 0, tables = 0;
  for (const LayerGroup& g : m.groups) {
    PF_TRY(check_group(m, g));
    storing += g.kind == LayerKind::none ? 0 : 1;
    tables += g.layers * std::max<int64_t>({1, g.kv_heads, g.heads});
    PF_TRY(in_range(m, "layers x KV heads", tables, 1, kMostTables));
  }
  if (storing == 0) return bad_input("{}: no layer stores keys and values or a state", m.id);
  return ok_status();
}

}  // namespace pagefold::calc
