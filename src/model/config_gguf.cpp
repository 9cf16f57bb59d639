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

Status read_rope(const Keys& k, ModelConfig& c) {
  RopeConfig& r = c.rope;
  PF_ASSIGN(r.theta, k.number("rope.freq_base", 10000.0));
  PF_ASSIGN(const int64_t rot, k.integer("rope.dimension_count", 0));
  r.rot = static_cast<int>(rot);
  PF_ASSIGN(const std::string kind, k.file.get_string(k.key("rope.scaling.type"), "none"));
  if (kind == "linear")
    r.kind = RopeKind::linear;
  else if (kind == "yarn")
    r.kind = RopeKind::yarn;
  else if (kind != "none")
    return unsupported("{}: rope scaling '{}' is not supported; known: none, linear, yarn",
                       k.file.name(), kind);
  PF_ASSIGN(const double old_factor, k.number("rope.scale_linear", 1.0));
  PF_ASSIGN(r.factor, k.number("rope.scaling.factor", old_factor));
  if (kind == "none" && k.file.get(k.key("rope.scale_linear"))) r.kind = RopeKind::linear;
  PF_ASSIGN(r.original_context, k.number("rope.scaling.original_context_length",
                                         static_cast<double>(c.shape.context_length)));
  // GGUF's factor multiplies YaRN's own, Hugging Face's replaces it.
  PF_ASSIGN(const double attention, k.number("rope.scaling.attn_factor", 1.0));
  if (attention != 1.0 && r.factor > 1)
    r.attention_factor = attention * (0.1 * std::log(r.factor) + 1);
  PF_ASSIGN(r.beta_fast, k.number("rope.scaling.yarn_beta_fast", 32.0));
  PF_ASSIGN(r.beta_slow, k.number("rope.scaling.yarn_beta_slow", 1.0));
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
  PF_ASSIGN(const int64_t window, k.integer("attention.sliding_window", 0));
  const auto small = [](int64_t v) {
    return static_cast<int>(std::min<int64_t>(std::max<int64_t>(v, -1), 1 << 30));
  };
  s.n_layers = small(layers);
  s.n_heads = small(heads);
  s.n_kv_heads = small(kv_heads);
  s.head_dim = small(head_dim);
  if (window > 0 && s.n_layers > 0 && s.n_layers <= 1024)
    s.layer_window.assign(static_cast<size_t>(s.n_layers), window);
  PF_TRY(read_rope(k, c));
  c.rope_half_layout = !c.arch->switches.gguf_rope_adjacent;
  c.attention_bias = c.arch->switches.qkv_bias || file.find("blk.0.attn_q.bias") != nullptr;
  c.output_bias = file.find("blk.0.attn_output.bias") != nullptr;
  c.tied_head = file.find("output.weight") == nullptr;
  PF_TRY(validate_config(c, file.name()));
  return c;
}

}  // namespace pagefold
