// Hugging Face config.json, as the Transformers library writes it (rope_scaling of v4,
// rope_parameters of v5).
#include "model/config.h"

namespace pagefold {
namespace {

class Fields {
 public:
  Fields(const Json& object, std::string_view where) : object_(object), where_(where) {}

  const Json* get(std::string_view key) const {
    const auto it = object_.find(std::string(key));
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  Result<int64_t> integer(std::string_view key, int64_t fallback) const {
    const Json* v = get(key);
    if (!v) return fallback;
    if (!v->is_number_integer() || (v->is_number_unsigned() && v->get<uint64_t>() > INT64_MAX))
      return wrong(key, "an integer", *v);
    return v->get<int64_t>();
  }
  Result<int64_t> required(std::string_view key) const {
    if (!get(key)) return bad_data("{}: field '{}' is missing", where_, key);
    return integer(key, 0);
  }
  Result<double> number(std::string_view key, double fallback) const {
    const Json* v = get(key);
    if (!v) return fallback;
    if (!v->is_number()) return wrong(key, "a number", *v);
    return v->get<double>();
  }
  Result<bool> boolean(std::string_view key, bool fallback) const {
    const Json* v = get(key);
    if (!v) return fallback;
    if (!v->is_boolean()) return wrong(key, "true or false", *v);
    return v->get<bool>();
  }
  Result<std::string> text(std::string_view key, std::string fallback) const {
    const Json* v = get(key);
    if (!v) return fallback;
    if (!v->is_string()) return wrong(key, "a string", *v);
    return v->get<std::string>();
  }
  Status wrong(std::string_view key, std::string_view expected, const Json& got) const {
    return bad_data("{}: field '{}' must be {}, not {}", where_, key, expected, json_kind(got));
  }

 private:
  const Json& object_;
  std::string_view where_;
};

Result<RopeKind> rope_kind(const std::string& name, std::string_view where) {
  if (name == "default" || name.empty()) return RopeKind::standard;
  if (name == "linear") return RopeKind::linear;
  if (name == "llama3") return RopeKind::llama3;
  if (name == "yarn") return RopeKind::yarn;
  return unsupported("{}: rope type '{}' is not supported; known: default, linear, llama3, yarn",
                     where, name);
}

Status read_rope(const Fields& f, const Json& config, std::string_view where, ModelConfig& c) {
  RopeConfig& r = c.rope;
  PF_ASSIGN(r.theta, f.number("rope_theta", 10000.0));
  PF_ASSIGN(const double partial, f.number("partial_rotary_factor", 1.0));
  if (partial != 1.0)
    return unsupported("{}: partial_rotary_factor {} is not supported", where, partial);
  (void)config;
  const Json* scaling = f.get("rope_parameters");
  if (!scaling) scaling = f.get("rope_scaling");
  if (!scaling) return ok_status();
  if (!scaling->is_object()) return f.wrong("rope_scaling", "an object", *scaling);
  const Fields s(*scaling, where);
  PF_ASSIGN(const std::string old_name, s.text("type", ""));
  PF_ASSIGN(const std::string name, s.text("rope_type", old_name));
  PF_ASSIGN(r.kind, rope_kind(name, where));
  PF_ASSIGN(r.theta, s.number("rope_theta", r.theta));
  if (r.kind == RopeKind::standard) return ok_status();
  if (!s.get("factor")) return bad_data("{}: rope type '{}' needs 'factor'", where, name);
  PF_ASSIGN(r.factor, s.number("factor", 1.0));
  PF_ASSIGN(r.original_context, s.number("original_max_position_embeddings",
                                         static_cast<double>(c.shape.context_length)));
  PF_ASSIGN(r.low_freq_factor, s.number("low_freq_factor", 1.0));
  PF_ASSIGN(r.high_freq_factor, s.number("high_freq_factor", 4.0));
  PF_ASSIGN(r.beta_fast, s.number("beta_fast", 32.0));
  PF_ASSIGN(r.beta_slow, s.number("beta_slow", 1.0));
  PF_ASSIGN(r.attention_factor, s.number("attention_factor", 0.0));
  PF_ASSIGN(r.truncate, s.boolean("truncate", true));
  if (s.get("mscale") || s.get("mscale_all_dim"))
    return unsupported("{}: rope mscale is not supported", where);
  return ok_status();
}

// Windows: layer_types names each layer; else use_sliding_window with max_window_layers (Qwen);
// else all layers (Mistral).
Status read_windows(const Fields& f, std::string_view where, ModelConfig& c) {
  PF_ASSIGN(const int64_t window, f.integer("sliding_window", 0));
  PF_ASSIGN(const bool use, f.boolean("use_sliding_window", c.arch->name == "llama"));
  const size_t n = static_cast<size_t>(c.shape.n_layers);
  c.shape.layer_window.assign(n, 0);
  const Json* types = f.get("layer_types");
  if (types) {
    if (!types->is_array() || types->size() != n)
      return bad_data("{}: 'layer_types' must list {} layers", where, n);
    for (size_t i = 0; i < n; ++i) {
      const Json& t = (*types)[i];
      const std::string name = t.is_string() ? t.get<std::string>() : "";
      if (name == "sliding_attention") {
        if (window <= 0)
          return bad_data("{}: layer {} slides but 'sliding_window' is missing", where, i);
        c.shape.layer_window[i] = window;
      } else if (name != "full_attention") {
        return unsupported(
            "{}: layer type '{}' is not supported; known: full_attention, sliding_attention", where,
            name);
      }
    }
    return ok_status();
  }
  if (!use || window <= 0) return ok_status();
  PF_ASSIGN(const int64_t first, f.integer("max_window_layers", 0));
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<int64_t>(i) >= first) c.shape.layer_window[i] = window;
  }
  return ok_status();
}

Status refuse_others(const Fields& f, std::string_view where) {
  PF_ASSIGN(const std::string act, f.text("hidden_act", "silu"));
  if (act != "silu")
    return unsupported("{}: hidden_act '{}' is not supported; known: silu", where, act);
  PF_ASSIGN(const bool mlp_bias, f.boolean("mlp_bias", false));
  if (mlp_bias) return unsupported("{}: mlp_bias is not supported", where);
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (f.get(key))
      return unsupported(
          "{}: '{}' (a quantised checkpoint) is not supported yet; use a 16-bit or a GGUF model",
          where, key);
  }
  return ok_status();
}

}  // namespace

Result<ModelConfig> config_from_hf(const Json& config, std::string_view where) {
  if (!config.is_object()) return bad_data("{}: expected an object", where);
  const Fields f(config, where);
  ModelConfig c;
  const Json* classes = f.get("architectures");
  if (!classes || !classes->is_array() || classes->size() != 1 || !(*classes)[0].is_string()) {
    return bad_data("{}: 'architectures' must name one class", where);
  }
  c.arch_name = (*classes)[0].get<std::string>();
  auto arch = find_hf_architecture(c.arch_name);
  if (!arch.ok()) return with_context(arch.status(), where);
  c.arch = *arch;
  PF_TRY(refuse_others(f, where));

  ModelShape& s = c.shape;
  s.architecture = c.arch->name;
  PF_ASSIGN(const int64_t layers, f.required("num_hidden_layers"));
  if (layers < 1 || layers > 1024) return bad_data("{}: num_hidden_layers is {}", where, layers);
  s.n_layers = static_cast<int>(layers);
  PF_ASSIGN(const int64_t heads, f.required("num_attention_heads"));
  PF_ASSIGN(const int64_t kv_heads, f.integer("num_key_value_heads", heads));
  PF_ASSIGN(const int64_t head_dim, f.integer("head_dim", 0));
  if (heads > 1024 || kv_heads > 1024 || head_dim > 1 << 16)
    return bad_data("{}: head counts or head_dim are out of range", where);
  s.n_heads = static_cast<int>(heads);
  s.n_kv_heads = static_cast<int>(kv_heads);
  s.head_dim = static_cast<int>(head_dim);
  PF_ASSIGN(s.hidden, f.required("hidden_size"));
  PF_ASSIGN(c.ffn, f.required("intermediate_size"));
  PF_ASSIGN(s.vocab_size, f.required("vocab_size"));
  PF_ASSIGN(s.context_length, f.integer("max_position_embeddings", 2048));
  PF_ASSIGN(c.rms_eps, f.number("rms_norm_eps", 1e-6));
  PF_ASSIGN(c.tied_head, f.boolean("tie_word_embeddings", false));
  PF_ASSIGN(const bool bias, f.boolean("attention_bias", false));
  c.attention_bias = bias || c.arch->switches.qkv_bias;
  c.output_bias = bias && !c.arch->switches.qkv_bias;
  PF_ASSIGN(const std::string old_dtype, f.text("torch_dtype", ""));
  PF_ASSIGN(c.stored_dtype, f.text("dtype", old_dtype));
  PF_TRY(read_rope(f, config, where, c));
  PF_TRY(read_windows(f, where, c));
  PF_TRY(validate_config(c, where));
  return c;
}

}  // namespace pagefold
