// Hugging Face config.json, as the Transformers library writes it (rope_scaling of v4,
// rope_parameters of v5).
#include <cmath>

#include "model/config.h"
#include "model/json_fields.h"
#include "model/kv_recipe.h"

namespace pagefold {
namespace {

using Fields = JsonFields;

Result<RopeKind> rope_kind(const std::string& name, std::string_view where) {
  if (name == "default" || name.empty()) return RopeKind::standard;
  if (name == "linear") return RopeKind::linear;
  if (name == "llama3") return RopeKind::llama3;
  if (name == "yarn") return RopeKind::yarn;
  return unsupported("{}: rope type '{}' is not supported; known: default, linear, llama3, yarn",
                     where, name);
}

// v5 moves rope_theta into rope_parameters; v4 has it beside rope_scaling, which wins over the
// other.
Result<const Json*> rope_object(const Fields& f, std::string_view where) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* o = f.get(key);
    if (!o) continue;
    if (!o->is_object()) return f.wrong(key, "an object", *o);
    if (o->empty()) continue;
    for (const char* nested : {"full_attention", "sliding_attention"}) {
      if (o->contains(nested))
        return unsupported("{}: '{}' that differs from layer type to layer type is not supported",
                           where, key);
    }
    return o;
  }
  return nullptr;
}

// The scale of cos and sin that two mscales ask for (DeepSeek's form of YaRN); 0: the usual one.
Result<double> mscale_ratio(const Fields& s, double factor) {
  PF_ASSIGN(const double up, s.number("mscale", 0.0));
  PF_ASSIGN(const double down, s.number("mscale_all_dim", 0.0));
  if (up == 0 || down == 0 || factor <= 1) return 0.0;
  return (0.1 * up * std::log(factor) + 1) / (0.1 * down * std::log(factor) + 1);
}

Status read_scaling(const Fields& f, const Fields& s, std::string_view where, ModelConfig& c) {
  RopeConfig& r = c.rope;
  PF_ASSIGN(r.original_context, s.number("original_max_position_embeddings",
                                         static_cast<double>(c.shape.context_length)));
  // Beside the object, as some save it, it wins.
  PF_ASSIGN(r.original_context, f.number("original_max_position_embeddings", r.original_context));
  // Only YaRN may leave the factor out: how far the stated context exceeds the original one.
  const bool ratio = r.kind == RopeKind::yarn && r.original_context > 0 &&
                     r.original_context < static_cast<double>(c.shape.context_length);
  if (!s.get("factor") && !ratio) return bad_data("{}: this rope type needs 'factor'", where);
  PF_ASSIGN(r.factor,
            s.number("factor", static_cast<double>(c.shape.context_length) / r.original_context));
  PF_ASSIGN(r.low_freq_factor, s.number("low_freq_factor", 1.0));
  PF_ASSIGN(r.high_freq_factor, s.number("high_freq_factor", 4.0));
  if (r.kind != RopeKind::yarn) return ok_status();
  PF_ASSIGN(r.beta_fast, s.number("beta_fast", 32.0));
  PF_ASSIGN(r.beta_slow, s.number("beta_slow", 1.0));
  PF_ASSIGN(const double from_mscale, mscale_ratio(s, r.factor));
  PF_ASSIGN(r.attention_factor, s.number("attention_factor", from_mscale));
  PF_ASSIGN(r.truncate, s.boolean("truncate", true));
  return ok_status();
}

Status read_rope(const Fields& f, std::string_view where, ModelConfig& c) {
  RopeConfig& r = c.rope;
  PF_ASSIGN(r.theta, f.number("rope_theta", 10000.0));
  PF_ASSIGN(double partial, f.number("partial_rotary_factor", 1.0));
  PF_ASSIGN(const Json* object, rope_object(f, where));
  if (object) {
    const Fields s(*object, where);
    PF_ASSIGN(const std::string old_name, s.text("type", "default"));
    PF_ASSIGN(const std::string name, s.text("rope_type", old_name));
    PF_ASSIGN(r.kind, rope_kind(name, where));
    PF_ASSIGN(r.theta, s.number("rope_theta", r.theta));
    PF_ASSIGN(partial, s.number("partial_rotary_factor", partial));
    if (r.kind != RopeKind::standard) PF_TRY(read_scaling(f, s, where, c));
  }
  if (partial != 1.0)
    return unsupported("{}: partial_rotary_factor {} is not supported", where, partial);
  return ok_status();
}

struct WindowFields {
  int64_t window = 0;  // 0: none
  int64_t first = 0;   // the first layer that slides where no layer_types say so
  bool use = true;     // false: windows are switched off, whatever else is said
};

// Defaults of absent fields are those of the Transformers classes: Mistral and Qwen have a window
// of 4,096 tokens unless told otherwise, which Qwen uses only when told so.
Result<WindowFields> window_fields(const Fields& f, ModelConfig& c) {
  WindowFields w;
  const bool implied = c.arch_name != "LlamaForCausalLM" && !f.present("sliding_window");
  PF_ASSIGN(w.window, f.integer("sliding_window", implied ? 4096 : 0));
  if (c.arch->name != "llama") {
    PF_ASSIGN(w.use, f.boolean("use_sliding_window", false));
    PF_ASSIGN(w.first, f.integer("max_window_layers", 28));
  }
  return w;
}

// layer_types names each layer; else Qwen's max_window_layers, else all layers.
Status read_windows(const Fields& f, std::string_view where, ModelConfig& c) {
  PF_ASSIGN(const WindowFields w, window_fields(f, c));
  const size_t n = static_cast<size_t>(c.shape.n_layers);
  c.shape.layer_window.assign(n, 0);
  const Json* types = f.get("layer_types");
  if (!types) {
    if (!w.use || w.window <= 0) return ok_status();
    for (size_t i = 0; i < n; ++i) {
      if (static_cast<int64_t>(i) >= w.first) c.shape.layer_window[i] = w.window;
    }
    return ok_status();
  }
  if (!types->is_array() || types->size() != n)
    return bad_data("{}: 'layer_types' must list {} layers", where, n);
  for (size_t i = 0; i < n; ++i) {
    const Json& t = (*types)[i];
    const std::string name = t.is_string() ? t.get<std::string>() : "";
    if (name == "full_attention") continue;
    if (name != "sliding_attention") {
      return unsupported(
          "{}: layer type '{}' is not supported; known: full_attention, sliding_attention", where,
          name);
    }
    if (!w.use)
      return bad_data("{}: 'layer_types' has layer {} slide but 'use_sliding_window' is false",
                      where, i);
    if (w.window <= 0)
      return bad_data("{}: layer {} slides but 'sliding_window' is missing", where, i);
    c.shape.layer_window[i] = w.window;
  }
  return ok_status();
}

Status refuse_others(const Fields& f, std::string_view where) {
  PF_ASSIGN(const std::string act, f.text("hidden_act", "silu"));
  if (act != "silu")
    return unsupported("{}: hidden_act '{}' is not supported; known: silu", where, act);
  PF_ASSIGN(const bool mlp_bias, f.boolean("mlp_bias", false));
  if (mlp_bias) return unsupported("{}: mlp_bias is not supported", where);
  for (const char* key : {"num_local_experts", "num_experts"}) {
    PF_ASSIGN(const int64_t experts, f.integer(key, 0));
    if (experts > 0)
      return unsupported("{}: mixture of experts ('{}' is {}) is not supported", where, key,
                         experts);
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
  PF_TRY(read_kv_scheme(config, where, c.kv));

  ModelShape& s = c.shape;
  s.architecture = c.arch->name;
  PF_ASSIGN(const int64_t layers, f.required("num_hidden_layers"));
  if (layers < 1 || layers > 1024) return bad_data("{}: num_hidden_layers is {}", where, layers);
  s.n_layers = static_cast<int>(layers);
  PF_ASSIGN(const int64_t heads, f.required("num_attention_heads"));
  PF_ASSIGN(const int64_t kv_heads, f.integer("num_key_value_heads", heads));
  // Qwen3Config alone has a head_dim of its own.
  PF_ASSIGN(const int64_t head_dim, f.integer("head_dim", c.arch->switches.qk_norm ? 128 : 0));
  for (const auto& [key, value] : {std::pair{"num_attention_heads", heads},
                                   {"num_key_value_heads", kv_heads},
                                   {"head_dim", head_dim}}) {
    if (value < 0 || value > 1024) return bad_data("{}: {} is {}", where, key, value);
  }
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
  PF_TRY(read_rope(f, where, c));
  PF_TRY(read_windows(f, where, c));
  PF_TRY(validate_config(c, where));
  return c;
}

}  // namespace pagefold
