// GGUF metadata keys: "<arch>.block_count" and so on (the gguf specification's list).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/config.h"

namespace pagefold {
namespace {

struct Keys {
  const GgufFile& file;
  std::string arch;

  std::string key(std::string_view suffix) const { return fmt::format("{}.{}", arch, suffix); }
  Result<int64_t> required(std::string_view suffix) const {
    const std::string k = key(suffix);
    if (!file.get(k)) return bad_data("{}: key '{}' is missing", file.name(), k);
    return file.get_int(k, 0);
  }
  Result<int64_t> integer(std::string_view suffix, int64_t fallback) const {
    return file.get_int(key(suffix), fallback);
  }
  Result<double> number(std::string_view suffix, double fallback) const {
    return file.get_float(key(suffix), fallback);
  }
};

// Narrowed so that what is out of range stays out of range.
int small(int64_t v) { return static_cast<int>(std::clamp<int64_t>(v, -1, 1 << 30)); }

// Some models write one number a layer; the engine runs those whose layers agree.
Result<int64_t> uniform_heads(const Keys& k, std::string_view suffix, int64_t fallback) {
  const GgufValue* v = k.file.get(k.key(suffix));
  if (!v) return fallback;
  const auto uniform = [&](const auto& list) -> Result<int64_t> {
    for (const auto x : list) {
      if (x != list.front())
        return unsupported("{}: '{}' differs from layer to layer", k.file.name(), k.key(suffix));
    }
    if (list.empty()) return bad_data("{}: '{}' is empty", k.file.name(), k.key(suffix));
    return static_cast<int64_t>(list.front());
  };
  if (const auto* u = std::get_if<std::vector<uint64_t>>(v)) return uniform(*u);
  if (const auto* i = std::get_if<std::vector<int64_t>>(v)) return uniform(*i);
  return k.file.get_int(k.key(suffix), 0);
}

// GGUF's attn_factor multiplies YaRN's own magnitude; Hugging Face's attention_factor replaces it.
Status read_yarn(const Keys& k, RopeConfig& r) {
  PF_ASSIGN(r.beta_fast, k.number("rope.scaling.yarn_beta_fast", 32.0));
  PF_ASSIGN(r.beta_slow, k.number("rope.scaling.yarn_beta_slow", 1.0));
  PF_ASSIGN(const double attention, k.number("rope.scaling.attn_factor", 1.0));
  PF_ASSIGN(const double log_multiplier, k.number("rope.scaling.yarn_log_multiplier", 0.0));
  const auto magnitude = [&](double m) {
    return r.factor <= 1 ? 1 : 0.1 * m * std::log(r.factor) + 1;
  };
  if (attention != 1.0 || log_multiplier != 0.0)
    r.attention_factor =
        attention * magnitude(1) / (log_multiplier == 0 ? 1 : magnitude(log_multiplier));
  for (const char* key : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    PF_ASSIGN(const double v, k.number(key, 1.0));
    if (v != 1.0)
      return unsupported("{}: '{}' {} is not supported; known: 1", k.file.name(), k.key(key), v);
  }
  return ok_status();
}

Status read_scaling(const Keys& k, ModelConfig& c) {
  RopeConfig& r = c.rope;
  // Files from before the type was written have a factor alone: linear.
  PF_ASSIGN(const std::string kind, k.file.get_string(k.key("rope.scaling.type"), "linear"));
  if (kind == "none") return ok_status();
  if (kind != "linear" && kind != "yarn")
    return unsupported("{}: rope scaling '{}' is not supported; known: none, linear, yarn",
                       k.file.name(), kind);
  r.kind = kind == "yarn" ? RopeKind::yarn : RopeKind::linear;
  PF_ASSIGN(const double old_factor, k.number("rope.scale_linear", 0.0));
  PF_ASSIGN(r.factor, k.number("rope.scaling.factor", old_factor));
  if (r.factor == 0) r.factor = 1;  // what files write for "none"
  PF_ASSIGN(r.original_context, k.number("rope.scaling.original_context_length",
                                         static_cast<double>(c.shape.context_length)));
  if (r.kind == RopeKind::yarn) return read_yarn(k, r);
  if (r.factor == 1) r.kind = RopeKind::standard;
  PF_ASSIGN(const double attention, k.number("rope.scaling.attn_factor", 1.0));
  if (attention != 1.0)
    return unsupported("{}: '{}' {} without YaRN is not supported", k.file.name(),
                       k.key("rope.scaling.attn_factor"), attention);
  return ok_status();
}

Status read_rope(const Keys& k, ModelConfig& c) {
  RopeConfig& r = c.rope;
  PF_ASSIGN(r.theta, k.number("rope.freq_base", 10000.0));
  PF_ASSIGN(const int64_t rot, k.integer("rope.dimension_count", 0));
  r.rot = small(rot);
  PF_TRY(read_scaling(k, c));
  // Llama 3's scaling comes as a tensor of divisors.
  const TensorInfo* t = k.file.find("rope_freqs.weight");
  if (t) {
    if (t->type != TensorType::F32)
      return unsupported("{}: rope_freqs.weight must be F32", k.file.name());
    r.divisors.resize(t->data.size() / sizeof(float));
    std::memcpy(r.divisors.data(), t->data.data(), r.divisors.size() * sizeof(float));
  }
  return ok_status();
}

// Which layers slide: all, or those that the pattern says: a flag a layer, or n: all but each n-th.
Status read_windows(const Keys& k, ModelConfig& c) {
  PF_ASSIGN(const int64_t window, k.integer("attention.sliding_window", 0));
  if (window <= 0 || c.shape.n_layers < 1 || c.shape.n_layers > 1024) return ok_status();
  const auto n = static_cast<size_t>(c.shape.n_layers);
  c.shape.layer_window.assign(n, window);
  const GgufValue* pattern = k.file.get(k.key("attention.sliding_window_pattern"));
  if (!pattern) return ok_status();
  if (const auto* flags = std::get_if<std::vector<bool>>(pattern)) {
    if (flags->size() != n)
      return bad_data("{}: '{}' has {} entries for {} layers", k.file.name(),
                      k.key("attention.sliding_window_pattern"), flags->size(), n);
    for (size_t i = 0; i < n; ++i) c.shape.layer_window[i] = (*flags)[i] ? window : 0;
    return ok_status();
  }
  PF_ASSIGN(const int64_t every, k.integer("attention.sliding_window_pattern", 0));
  for (size_t i = 0; every > 0 && i < n; ++i) {
    if (i % static_cast<size_t>(every) == static_cast<size_t>(every) - 1)
      c.shape.layer_window[i] = 0;
  }
  return ok_status();
}

Result<int64_t> vocabulary(const Keys& k) {
  PF_ASSIGN(const int64_t stated, k.integer("vocab_size", 0));
  if (stated > 0) return stated;
  const GgufValue* tokens = k.file.get("tokenizer.ggml.tokens");
  if (const auto* list = tokens ? std::get_if<std::vector<std::string>>(tokens) : nullptr) {
    return static_cast<int64_t>(list->size());
  }
  return bad_data("{}: neither '{}' nor 'tokenizer.ggml.tokens' gives the vocabulary",
                  k.file.name(), k.key("vocab_size"));
}

}  // namespace

Result<ModelConfig> config_from_gguf(const GgufFile& file) {
  ModelConfig c;
  PF_ASSIGN(c.arch_name, file.get_string("general.architecture", ""));
  if (c.arch_name.empty())
    return bad_data("{}: key 'general.architecture' is missing", file.name());
  auto arch = find_gguf_architecture(c.arch_name);
  if (!arch.ok()) return with_context(arch.status(), file.name());
  c.arch = *arch;
  const Keys k{file, c.arch_name};

  ModelShape& s = c.shape;
  s.architecture = c.arch->name;
  PF_ASSIGN(const int64_t layers, k.required("block_count"));
  PF_ASSIGN(s.hidden, k.required("embedding_length"));
  PF_ASSIGN(c.ffn, k.required("feed_forward_length"));
  PF_ASSIGN(const int64_t heads, uniform_heads(k, "attention.head_count", 0));
  PF_ASSIGN(const int64_t kv_heads, uniform_heads(k, "attention.head_count_kv", heads));
  PF_ASSIGN(const int64_t head_dim, k.integer("attention.key_length", 0));
  PF_ASSIGN(const int64_t value_dim, k.integer("attention.value_length", head_dim));
  if (value_dim != head_dim)
    return unsupported("{}: value_length {} differs from key_length {}", file.name(), value_dim,
                       head_dim);
  PF_ASSIGN(s.context_length, k.required("context_length"));
  PF_ASSIGN(s.vocab_size, vocabulary(k));
  PF_ASSIGN(c.rms_eps, k.number("attention.layer_norm_rms_epsilon", 1e-5));
  PF_ASSIGN(const int64_t experts, k.integer("expert_count", 0));
  if (experts > 0)
    return unsupported("{}: mixture of experts ({} experts) is not supported", file.name(),
                       experts);
  s.n_layers = small(layers);
  s.n_heads = small(heads);
  s.n_kv_heads = small(kv_heads);
  s.head_dim = small(head_dim);
  PF_TRY(read_windows(k, c));
  PF_TRY(read_rope(k, c));
  c.rope_half_layout = !c.arch->switches.gguf_rope_adjacent;
  c.attention_bias = c.arch->switches.qkv_bias || file.find("blk.0.attn_q.bias") != nullptr;
  c.output_bias = file.find("blk.0.attn_output.bias") != nullptr;
  c.tied_head = file.find("output.weight") == nullptr;
  PF_TRY(validate_config(c, file.name()));
  return c;
}

}  // namespace pagefold
