#include "calc/kv_bytes.h"

#include <algorithm>

#include "calc/words.h"

namespace pagefold::calc {
namespace {

struct GgmlType {
  std::string_view name;
  int64_t block, bytes;
};
constexpr GgmlType kGgml[] = {{"f32", 1, 4},    {"f16", 1, 2},    {"bf16", 1, 2},
                              {"q8_0", 32, 34}, {"q5_1", 32, 24}, {"q5_0", 32, 22},
                              {"q4_1", 32, 20}, {"q4_0", 32, 18}, {"iq4_nl", 32, 18}};

KvType own_type(DType type) { return {std::string(dtype_name(type)), type, 1, 0}; }

Result<KvType> ggml_type(std::string_view word) {
  std::string name = lower(word);
  if (name == "auto" || name == "float16" || name == "half") name = "f16";
  if (name == "float32" || name == "float") name = "f32";
  if (name == "bfloat16") name = "bf16";
  std::string known;
  for (const GgmlType& t : kGgml) {
    if (t.name == name) return KvType{name, std::nullopt, t.block, t.bytes};
    list(known, t.name);
  }
  return bad_input("unknown KV cache type '{}' of llama.cpp: use {}", shown(word), known);
}

// "128 x 2", "128 x 1 + 2": what row_bytes counts.
std::string row_formula(const KvType& t, int64_t dim, int64_t group) {
  if (!t.own) {
    if (t.block == 1) return fmt::format("{} x {}", dim, t.block_bytes);
    return fmt::format("{} / {} x {}", dim, t.block, t.block_bytes);
  }
  const int64_t bits = static_cast<int64_t>(dtype_bits(*t.own));
  std::string out =
      bits % 8 == 0 ? fmt::format("{} x {}", dim, bits / 8) : fmt::format("{} x {}/8", dim, bits);
  const auto data = static_cast<uint64_t>(dim * bits / 8);
  if (const uint64_t scales = t.row_bytes(dim, group) - data; scales > 0) {
    out += fmt::format(" + {}", scales);
  }
  return out;
}

// Of the keys by which sparse attention picks what it reads.
const KvType& index_type(const CacheTypes& t) { return t.index ? *t.index : t.k; }

// Keys and queries share a layout in a latent: it is one vector in the type of keys.
uint64_t mla_token_bytes(const LayerGroup& g, const CacheTypes& t) {
  const uint64_t index = g.index_dim > 0 ? index_type(t).row_bytes(g.index_dim, t.group) : 0;
  switch (t.mla) {
    case MlaForm::packed_fp8:
      return static_cast<uint64_t>(g.latent + ceil_div(g.latent, 128) * 4 + g.rope * 2) + index;
    case MlaForm::expanded:
      return static_cast<uint64_t>(g.heads) *
                 (t.k.row_bytes(g.nope + g.rope, t.group) + t.v.row_bytes(g.v_dim, t.group)) +
             index;
    case MlaForm::latent:
      break;
  }
  return t.k.row_bytes(g.latent + g.rope, t.group) + index;
}

std::string mla_formula(const LayerGroup& g, const CacheTypes& t) {
  std::string out;
  if (t.mla == MlaForm::packed_fp8) {
    out = fmt::format("({} + {} x 4 + {} x 2)", g.latent, ceil_div(g.latent, 128), g.rope);
  } else if (t.mla == MlaForm::expanded) {
    out = fmt::format("{} heads x ({} + {})", g.heads, row_formula(t.k, g.nope + g.rope, t.group),
                      row_formula(t.v, g.v_dim, t.group));
  } else {
    out = fmt::format("({})", row_formula(t.k, g.latent + g.rope, t.group));
  }
  if (g.index_dim > 0)
    out = fmt::format("({} + {})", out, row_formula(index_type(t), g.index_dim, t.group));
  return out;
}

// Elements of the convolution's state and of the recurrent one.
Checked conv_elements(const LayerGroup& g) {
  const int64_t channels = g.kind == LayerKind::delta_net
                               ? 2 * g.n_keys * g.k_size + g.n_values * g.v_size
                               : g.n_values * g.v_size + 2 * g.n_keys * g.k_size;
  return Checked(g.conv_kernel - 1) * channels;
}
Checked state_elements(const LayerGroup& g) { return Checked(g.n_values) * g.v_size * g.k_size; }

}  // namespace

std::string_view rules_name(EngineRules rules) {
  return rules == EngineRules::vllm ? "vllm"
                                    : (rules == EngineRules::llama_cpp ? "llama.cpp" : "pagefold");
}

Result<EngineRules> parse_rules(std::string_view word) {
  const std::string name = lower(word);
  if (name == "pagefold") return EngineRules::pagefold;
  if (name == "vllm") return EngineRules::vllm;
  if (name == "llama.cpp" || name == "llama_cpp" || name == "llamacpp" || name == "ik_llama.cpp") {
    return EngineRules::llama_cpp;
  }
  return bad_input("unknown engine '{}': use pagefold, vllm or llama.cpp", shown(word));
}

Result<KvType> parse_kv_type(std::string_view word, EngineRules rules) {
  if (rules == EngineRules::llama_cpp) return ggml_type(word);
  const std::string name = word == "auto" ? "bfloat16" : shown(word);
  PF_ASSIGN(const DType type, parse_kv_dtype(name));
  if (rules == EngineRules::vllm && dtype_has_scales(type)) {
    return bad_input("vLLM has no {} KV cache: use bfloat16, float16, fp8_e4m3 or fp8_e5m2", name);
  }
  return own_type(type);
}

Status check_types(const Model& model, const CacheTypes& types) {
  const auto divides = [&](const KvType& t, int64_t dim) -> Status {
    if (t.block <= 1 || dim % t.block == 0) return ok_status();
    return bad_input(
        "{}: rows of {} elements are no whole blocks of {} of type {}; use f16 or q8_0 "
        "with another model, or no block type",
        model.id, dim, t.block, t.name);
  };
  for (const LayerGroup& g : model.groups) {
    if (!g.grows()) continue;
    if (g.kind == LayerKind::mla) {
      if (types.mla == MlaForm::expanded && (g.heads < 1 || g.v_dim < 1 || g.nope + g.rope < 1)) {
        return bad_input(
            "{}: heads, qk_nope_head_dim and v_head_dim are needed for expanded keys "
            "and values",
            model.id);
      }
      if (types.mla == MlaForm::latent) PF_TRY(divides(types.k, g.latent + g.rope));
      if (g.index_dim > 0) PF_TRY(divides(index_type(types), g.index_dim));
      continue;
    }
    PF_TRY(divides(types.k, g.k_dim));
    PF_TRY(divides(types.v, g.v_dim));
    for (const auto& [t, dim] : {std::pair{&types.k, g.k_dim}, {&types.v, g.v_dim}}) {
      if (t->own == DType::int4 && dim % 2 != 0) {
        return bad_input("{}: rows of {} elements do not fill whole bytes of int4", model.id, dim);
      }
    }
  }
  return ok_status();
}

LayerGroup on_one_rank(const LayerGroup& group, int64_t ranks) {
  LayerGroup g = group;
  const auto share = [&](int64_t& n) { n = n == 0 ? 0 : std::max<int64_t>(1, ceil_div(n, ranks)); };
  share(g.kv_heads);
  share(g.heads);
  share(g.n_keys);
  share(g.n_values);
  return g;
}

uint64_t layer_token_bytes(const LayerGroup& g, const CacheTypes& t) {
  if (!g.grows()) return 0;
  if (g.kind == LayerKind::mla) return mla_token_bytes(g, t);
  return static_cast<uint64_t>(g.kv_heads) *
         (t.k.row_bytes(g.k_dim, t.group) + t.v.row_bytes(g.v_dim, t.group));
}

std::string layer_token_formula(const LayerGroup& g, const CacheTypes& t) {
  if (!g.grows()) return "0";
  if (g.kind == LayerKind::mla) return mla_formula(g, t);
  return fmt::format("{} KV heads x ({} + {})", g.kv_heads, row_formula(t.k, g.k_dim, t.group),
                     row_formula(t.v, g.v_dim, t.group));
}

uint64_t layer_state_bytes(const LayerGroup& g, const CacheTypes& t) {
  if (!g.fixed_state()) return 0;
  const Checked one = conv_elements(g) * t.conv_bytes + state_elements(g) * t.state_bytes;
  const Checked all = one * (1 + t.snapshots);
  return all.ok() ? all.value() : UINT64_MAX;  // which no sum takes
}

std::string layer_state_formula(const LayerGroup& g, const CacheTypes& t) {
  const std::string copies = t.snapshots > 0 ? fmt::format("{} copies x ", 1 + t.snapshots) : "";
  return fmt::format("{}({} x (2 x {} x {} + {} x {}) x {} + {} x {} x {} x {})", copies,
                     g.conv_kernel - 1, g.n_keys, g.k_size, g.n_values, g.v_size, t.conv_bytes,
                     g.n_values, g.v_size, g.k_size, t.state_bytes);
}

Checked token_bytes(const std::vector<LayerGroup>& groups, const CacheTypes& types) {
  Checked sum;
  for (const LayerGroup& g : groups) sum += Checked(layer_token_bytes(g, types)) * g.layers;
  return sum;
}

Checked state_bytes(const std::vector<LayerGroup>& groups, const CacheTypes& types) {
  Checked sum;
  for (const LayerGroup& g : groups) sum += Checked(layer_state_bytes(g, types)) * g.layers;
  return sum;
}

int64_t needed_tokens(const LayerGroup& g, int64_t tokens, bool windows) {
  return windows && g.windowed() ? std::min(tokens, g.window) : tokens;
}

Checked ideal_bytes(const std::vector<LayerGroup>& groups, const CacheTypes& types, int64_t tokens,
                    bool windows) {
  Checked sum;
  for (const LayerGroup& g : groups) {
    sum += Checked(layer_token_bytes(g, types)) * g.layers * needed_tokens(g, tokens, windows);
  }
  return sum;
}

}  // namespace pagefold::calc
