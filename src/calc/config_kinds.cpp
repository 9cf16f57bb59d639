#include "calc/config_kinds.h"

#include <algorithm>

#include "calc/words.h"

namespace pagefold::calc {
namespace {

constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention",
                           kChunked = "chunked_attention", kLinear = "linear_attention",
                           kNone = "none";

int64_t how_many(const std::vector<std::string>& types, std::string_view type) {
  return std::count(types.begin(), types.end(), type);
}

void add(Model& m, LayerGroup g) {
  if (g.layers > 0) m.groups.push_back(g);
}

LayerGroup storing_nothing(int64_t layers) {
  LayerGroup g;
  g.kind = LayerKind::none;
  g.layers = layers;
  return g;
}

}  // namespace

Result<LayerReader::Heads> LayerReader::heads() const {
  Heads h;
  if (m.n_heads == 0) {
    return bad_data("{}: field 'num_attention_heads' is missing", f.where());
  }
  PF_ASSIGN(const bool multi_query, f.flag("multi_query", false));
  PF_ASSIGN(const bool newer_falcon, f.flag("new_decoder_architecture", false));
  const int64_t implied = multi_query && !newer_falcon ? 1 : m.n_heads;
  PF_ASSIGN(h.kv, f.count({"num_key_value_heads", "num_kv_heads", "n_head_kv"}, implied));
  if (multi_query && !newer_falcon && !f.has("num_key_value_heads")) h.kv = 1;
  PF_ASSIGN(h.k_dim, f.count("head_dim", head_dim));
  if (h.k_dim == 0) {
    if (m.hidden == 0) return bad_data("{}: field 'hidden_size' is missing", f.where());
    if (m.hidden % m.n_heads != 0) {
      return bad_data("{}: hidden_size {} is no multiple of {} heads and no 'head_dim' is given",
                      f.where(), m.hidden, m.n_heads);
    }
    h.k_dim = m.hidden / m.n_heads;
  }
  PF_ASSIGN(h.v_dim, f.count("v_head_dim", h.k_dim));
  return h;
}

Result<std::vector<std::string>> LayerReader::layer_types() const {
  PF_ASSIGN(std::vector<std::string> list, f.words("layer_types"));
  if (!list.empty() && list.size() != static_cast<size_t>(m.n_layers)) {
    return bad_data("{}: 'layer_types' has {} entries for {} layers", f.where(), list.size(),
                    m.n_layers);
  }
  for (const std::string& t : list) {
    if (t != kFull && t != kSliding && t != kChunked && t != kLinear) {
      return unsupported(
          "{}: unknown layer type '{}'; known: full_attention, sliding_attention, "
          "chunked_attention, linear_attention",
          f.where(), shown(t));
    }
  }
  return list;
}

// null and an absent field where the family has no default: no window.
Result<int64_t> LayerReader::window_width() const {
  const bool said = f.has("sliding_window");
  if (said) return f.count("sliding_window", 0);
  return window;
}

Result<std::vector<std::string>> LayerReader::types(Windows windows, int64_t& width) const {
  PF_ASSIGN(width, window_width());
  PF_ASSIGN(std::vector<std::string> list, layer_types());
  if (windows == Windows::qwen) {
    PF_ASSIGN(const bool use, f.flag("use_sliding_window", false));
    if (!use) width = 0;
  }
  if (!list.empty()) {
    if (how_many(list, kSliding) > 0 && width == 0) {
      return bad_data("{}: 'layer_types' has sliding layers, but no 'sliding_window' says how wide",
                      f.where());
    }
    return list;
  }
  const auto n = static_cast<size_t>(m.n_layers);
  list.assign(n, std::string(kFull));
  if (width == 0 || windows == Windows::none) return list;
  PF_ASSIGN(const int64_t every,
            f.count({"sliding_window_pattern", "_sliding_window_pattern"}, period));
  PF_ASSIGN(const int64_t first, f.maybe_zero("max_window_layers", 28));
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<int64_t>(i);
    const bool slides = windows == Windows::all || (windows == Windows::qwen && at >= first) ||
                        (windows == Windows::alternating && at % 2 == 0) ||
                        (windows == Windows::every && every > 0 && (at + 1) % every != 0);
    if (slides) list[i] = kSliding;
  }
  return list;
}

// Layers that read what an earlier one stored: the last num_kv_shared_layers (Gemma 3n), or all but
// each cla_share_factor-th (cross-layer attention, arXiv 2405.12981).
Status LayerReader::share_layers(std::vector<std::string>& list) const {
  PF_ASSIGN(const int64_t shared, f.maybe_zero("num_kv_shared_layers", 0));
  if (shared >= m.n_layers) {
    return bad_data("{}: num_kv_shared_layers is {} of {} layers", f.where(), shared, m.n_layers);
  }
  for (size_t i = list.size() - static_cast<size_t>(shared); i < list.size(); ++i) list[i] = kNone;
  PF_ASSIGN(const bool cla, f.flag("use_cla", false));
  PF_ASSIGN(const int64_t factor, f.count("cla_share_factor", 1));
  for (size_t i = 0; cla && i < list.size(); ++i) {
    if (static_cast<int64_t>(i) % factor != 0) list[i] = kNone;
  }
  return ok_status();
}

Status LayerReader::attention(Windows windows) const {
  PF_ASSIGN(const Heads h, heads());
  int64_t width = 0;
  PF_ASSIGN(std::vector<std::string> list, types(windows, width));
  PF_TRY(share_layers(list));
  if (how_many(list, kLinear) > 0 || how_many(list, kChunked) > 0) {
    return unsupported("{}: '{}' has no linear or chunked layers that are known here", f.where(),
                       shown(m.architecture));
  }
  if (const int64_t n = how_many(list, kSliding); n > 0) {
    add(m, windowed_layers(LayerKind::sliding, n, h.kv, h.k_dim, h.v_dim, width));
  }
  // Gemma 4: full layers have heads of their own.
  PF_ASSIGN(const int64_t full_heads,
            f.count({"num_global_key_value_heads", "num_global_kv_heads"}, h.kv));
  PF_ASSIGN(const int64_t full_dim, f.count("global_head_dim", h.k_dim));
  const int64_t full_v = f.has("global_head_dim") ? full_dim : h.v_dim;
  add(m, full_layers(how_many(list, kFull), full_heads, full_dim, full_v));
  add(m, storing_nothing(how_many(list, kNone)));
  return ok_status();
}

// How many layers have an indexer of their own; the others read what an earlier one picked. Said
// layer by layer (full, shared), by letters (F, S), or by a period from an offset on.
Result<int64_t> LayerReader::indexer_layers() const {
  constexpr std::string_view kTypes = "indexer_types", kPattern = "index_topk_pattern";
  PF_ASSIGN(std::vector<std::string> list, f.words(kTypes));
  std::string_view key = kTypes;
  if (list.empty()) {
    key = kPattern;
    if (const Json* pattern = f.get(kPattern); pattern != nullptr && pattern->is_array()) {
      PF_ASSIGN(list, f.words(kPattern));
    } else {
      PF_ASSIGN(const std::string letters, f.text(kPattern));
      for (const char c : letters) list.emplace_back(1, c);
    }
  }
  if (list.empty()) {
    PF_ASSIGN(const int64_t period, f.count("index_topk_freq", 1));
    PF_ASSIGN(const int64_t offset, f.maybe_zero("index_skip_topk_offset", 2));
    int64_t own = 0;
    for (int64_t i = 0; i < m.n_layers; ++i) {
      own += std::max<int64_t>(i - offset + 1, 0) % period == 0 ? 1 : 0;
    }
    return own;
  }
  if (list.size() != static_cast<size_t>(m.n_layers)) {
    return bad_data("{}: '{}' has {} entries for {} layers", f.where(), key, list.size(),
                    m.n_layers);
  }
  int64_t own = 0;
  for (const std::string& t : list) {
    const bool full = t == "full" || t == "F";
    if (!full && t != "shared" && t != "S") {
      return unsupported("{}: unknown entry '{}' of '{}'; known: full, shared, F, S", f.where(),
                         shown(t), key);
    }
    own += full ? 1 : 0;
  }
  return own;
}

Status LayerReader::mla() const {
  LayerGroup g;
  g.kind = LayerKind::mla;
  g.layers = m.n_layers;
  g.heads = m.n_heads;
  PF_ASSIGN(g.latent, f.required("kv_lora_rank"));
  PF_ASSIGN(g.rope, f.required("qk_rope_head_dim"));
  PF_ASSIGN(g.nope, f.maybe_zero("qk_nope_head_dim", 0));
  PF_ASSIGN(g.v_dim, f.maybe_zero("v_head_dim", 0));
  PF_ASSIGN(const int64_t index_dim, f.maybe_zero("index_head_dim", 0));
  if (index_dim > 0) {
    PF_ASSIGN(const int64_t own, indexer_layers());
    g.layers = m.n_layers - own;
    add(m, g);
    g.layers = own;
    g.index_dim = index_dim;  // last: layers of draft heads have one, too
  }
  add(m, g);
  return ok_status();
}

// Qwen3-Next, Qwen3.5: every full_attention_interval-th layer is full, the rest hold states.
Status LayerReader::linear() const {
  PF_ASSIGN(const Heads h, heads());
  PF_ASSIGN(std::vector<std::string> list, layer_types());
  if (list.empty()) {
    PF_ASSIGN(const int64_t every, f.count("full_attention_interval", 4));
    for (int64_t i = 0; i < m.n_layers; ++i) {
      list.emplace_back((i + 1) % every == 0 ? kFull : kLinear);
    }
  }
  LayerGroup g;
  g.kind = LayerKind::delta_net;
  g.layers = how_many(list, kLinear);
  PF_ASSIGN(g.n_keys, f.required("linear_num_key_heads"));
  PF_ASSIGN(g.k_size, f.required("linear_key_head_dim"));
  PF_ASSIGN(g.n_values, f.required("linear_num_value_heads"));
  PF_ASSIGN(g.v_size, f.required("linear_value_head_dim"));
  PF_ASSIGN(g.conv_kernel, f.count("linear_conv_kernel_dim", 4));
  add(m, full_layers(how_many(list, kFull), h.kv, h.k_dim, h.v_dim));
  add(m, g);
  return ok_status();
}

// One letter a layer: M a state, * attention, - and E feed-forward.
Status LayerReader::nemotron() const {
  PF_ASSIGN(const Heads h, heads());
  PF_ASSIGN(std::string pattern, f.text("hybrid_override_pattern"));
  if (pattern.empty()) {
    return bad_data("{}: field 'hybrid_override_pattern' is missing", f.where());
  }
  if (pattern.size() != static_cast<size_t>(m.n_layers) ||
      pattern.find_first_not_of("M*-E") != std::string::npos) {
    return bad_data("{}: 'hybrid_override_pattern' must have {} letters M, *, - or E", f.where(),
                    m.n_layers);
  }
  LayerGroup g;
  g.kind = LayerKind::mamba2;
  g.layers = std::count(pattern.begin(), pattern.end(), 'M');
  PF_ASSIGN(g.n_values, f.required("mamba_num_heads"));
  PF_ASSIGN(g.v_size, f.required("mamba_head_dim"));
  PF_ASSIGN(g.n_keys, f.required({"n_groups", "mamba_n_groups"}));
  PF_ASSIGN(g.k_size, f.required({"ssm_state_size", "mamba_d_state"}));
  PF_ASSIGN(g.conv_kernel, f.count({"conv_kernel", "mamba_d_conv"}, 4));
  const int64_t attention_layers = std::count(pattern.begin(), pattern.end(), '*');
  add(m, full_layers(attention_layers, h.kv, h.k_dim, h.v_dim));
  const int64_t others = m.n_layers - attention_layers - g.layers;
  add(m, g);
  add(m, storing_nothing(others));
  return ok_status();
}

// Layers with rotation attend within chunks, those without (each fourth) to everything.
Status LayerReader::llama4() const {
  PF_ASSIGN(const Heads h, heads());
  PF_ASSIGN(const int64_t chunk, f.count("attention_chunk_size", 8192));
  PF_ASSIGN(std::vector<std::string> list, layer_types());
  if (list.empty()) {
    PF_ASSIGN(const std::vector<int64_t> rotated, f.numbers("no_rope_layers"));
    PF_ASSIGN(const int64_t every, f.count("no_rope_layer_interval", 4));
    if (!rotated.empty() && rotated.size() != static_cast<size_t>(m.n_layers)) {
      return bad_data("{}: 'no_rope_layers' has {} entries for {} layers", f.where(),
                      rotated.size(), m.n_layers);
    }
    for (int64_t i = 0; i < m.n_layers; ++i) {
      const bool local =
          rotated.empty() ? (i + 1) % every != 0 : rotated[static_cast<size_t>(i)] != 0;
      list.emplace_back(local ? kChunked : kFull);
    }
  }
  LayerGroup local =
      windowed_layers(LayerKind::chunked, how_many(list, kChunked), h.kv, h.k_dim, h.v_dim, chunk);
  add(m, local);
  add(m, full_layers(how_many(list, kFull), h.kv, h.k_dim, h.v_dim));
  return ok_status();
}

// hybrid_layer_pattern: 0 full, 1 sliding; the swa_ fields are of the sliding layers.
Status LayerReader::mimo() const {
  PF_ASSIGN(const Heads h, heads());
  PF_ASSIGN(const std::vector<int64_t> pattern, f.numbers("hybrid_layer_pattern"));
  if (pattern.size() != static_cast<size_t>(m.n_layers)) {
    return bad_data("{}: 'hybrid_layer_pattern' must have {} entries", f.where(), m.n_layers);
  }
  const int64_t sliding =
      std::count_if(pattern.begin(), pattern.end(), [](int64_t p) { return p != 0; });
  Heads s;
  PF_ASSIGN(s.kv, f.count("swa_num_key_value_heads", h.kv));
  PF_ASSIGN(s.k_dim, f.count("swa_head_dim", h.k_dim));
  PF_ASSIGN(s.v_dim, f.count("swa_v_head_dim", h.v_dim));
  PF_ASSIGN(const int64_t width, f.count({"sliding_window_size", "sliding_window"}, 128));
  add(m, windowed_layers(LayerKind::sliding, sliding, s.kv, s.k_dim, s.v_dim, width));
  add(m, full_layers(m.n_layers - sliding, h.kv, h.k_dim, h.v_dim));
  return ok_status();
}

}  // namespace pagefold::calc
