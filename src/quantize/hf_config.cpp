#include "quantize/hf_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/dtype.h"

namespace pagefold {
namespace {

// The divisors of Llama 3's rule (its rope_scaling "llama3"): 1 for short wavelengths, `factor` for
// long ones, and between them 1 / ((1 - k) / factor + k), where k goes from 0 to 1 as the turns in
// the original context go from low to high.
std::vector<double> llama3_divisors(const RopeConfig& r, double factor, double context) {
  constexpr double kLow = 1, kHigh = 4;
  std::vector<double> out;
  for (int i = 0; i < r.rot; i += 2) {
    const double frequency = std::pow(r.theta, -static_cast<double>(i) / r.rot);
    const double turns = context * frequency / (2 * std::numbers::pi);
    const double k = std::clamp((turns - kLow) / (kHigh - kLow), 0.0, 1.0);
    out.push_back(1 / ((1 - k) / factor + k));
  }
  return out;
}

double distance(const std::vector<float>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} / b[i] - 1));
  return most;
}

// A GGUF file holds the divisors alone; the numbers behind them are found again: the factor is the
// largest divisor, the original context is solved from a divisor between the two ends.
Result<Json> llama3_scaling(const RopeConfig& r) {
  const double factor = double{*std::max_element(r.divisors.begin(), r.divisors.end())};
  std::vector<double> contexts = {8192, 4096, 2048, 16384, 32768, 65536, 131072};
  for (size_t i = 0; i < r.divisors.size() && factor > 1; ++i) {
    const double k = (1 / double{r.divisors[i]} - 1 / factor) / (1 - 1 / factor);
    if (k < 0.01 || k > 0.99) continue;
    const double frequency = std::pow(r.theta, -2.0 * static_cast<double>(i) / r.rot);
    contexts.push_back(std::round((1 + 3 * k) * 2 * std::numbers::pi / frequency));
  }
  for (const double context : contexts) {
    if (distance(r.divisors, llama3_divisors(r, factor, context)) > 1e-5) continue;
    return Json{{"rope_type", "llama3"},
                {"factor", factor},
                {"low_freq_factor", 1.0},
                {"high_freq_factor", 4.0},
                {"original_max_position_embeddings", static_cast<int64_t>(context)}};
  }
  return unsupported(
      "the rotary divisors (rope_freqs) follow no rule that config.json can state; only Llama 3's "
      "is known");
}

Result<Json> rope_scaling(const RopeConfig& r) {
  if (!r.divisors.empty()) {
    if (r.kind != RopeKind::standard)
      return unsupported("rotary divisors (rope_freqs) together with rope scaling");
    return llama3_scaling(r);
  }
  const auto context = static_cast<int64_t>(r.original_context);
  switch (r.kind) {
    case RopeKind::standard:
      return Json(nullptr);
    case RopeKind::linear:
      return Json{{"rope_type", "linear"}, {"factor", r.factor}};
    case RopeKind::llama3:
      return Json{{"rope_type", "llama3"},
                  {"factor", r.factor},
                  {"low_freq_factor", r.low_freq_factor},
                  {"high_freq_factor", r.high_freq_factor},
                  {"original_max_position_embeddings", context}};
    case RopeKind::yarn:
      break;
  }
  Json yarn = {{"rope_type", "yarn"},
               {"factor", r.factor},
               {"beta_fast", r.beta_fast},
               {"beta_slow", r.beta_slow},
               {"original_max_position_embeddings", context}};
  if (r.attention_factor != 0) yarn["attention_factor"] = r.attention_factor;
  if (!r.truncate) yarn["truncate"] = false;
  return yarn;
}

// The class and its window fields. Layers of Qwen models may differ; llama models slide in all
// layers (Mistral's class) or in none.
Status windows(const ModelConfig& c, Json& out) {
  const std::vector<int64_t>& w = c.shape.layer_window;
  const int64_t widest = w.empty() ? 0 : *std::max_element(w.begin(), w.end());
  const bool uniform = std::all_of(w.begin(), w.end(), [&](int64_t x) { return x == widest; });
  if (c.arch->name == "llama") {
    if (widest == 0) return ok_status();
    if (!uniform) return unsupported("a llama model in which only some layers have a window");
    if (c.attention_bias) return unsupported("a llama model with both a window and biases");
    out["architectures"] = Json::array({"MistralForCausalLM"});
    out["model_type"] = "mistral";
    out["sliding_window"] = widest;
    return ok_status();
  }
  out["use_sliding_window"] = widest > 0;
  out["sliding_window"] = widest > 0 ? Json(widest) : Json(nullptr);
  if (widest == 0) return ok_status();
  Json types = Json::array();
  for (const int64_t x : w) {
    if (x != 0 && x != widest) return unsupported("layers with windows of different widths");
    types.push_back(x > 0 ? "sliding_attention" : "full_attention");
  }
  out["max_window_layers"] = 0;
  out["layer_types"] = std::move(types);
  return ok_status();
}

Json end_ids(const std::vector<int32_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? Json(ids[0]) : Json(ids);
}

Json id_or_null(int32_t id) { return id >= 0 ? Json(id) : Json(nullptr); }

}  // namespace

Result<Json> hf_config(const ModelConfig& c, DType dtype, const GgufTokenizerSpec& tokenizer,
                       const std::vector<int32_t>& end_tokens) {
  const ModelShape& s = c.shape;
  if (c.rope.rot != s.head_dim) {
    return unsupported(
        "{} of {} dims of a head are rotated: config.json of this family has no word"
        " for it",
        c.rope.rot, s.head_dim);
  }
  PF_ASSIGN(Json scaling, rope_scaling(c.rope));
  Json out = {{"architectures", Json::array({std::string(c.arch->hf_classes.front())})},
              {"model_type", std::string(c.arch->name)},
              {"vocab_size", s.vocab_size},
              {"hidden_size", s.hidden},
              {"intermediate_size", c.ffn},
              {"num_hidden_layers", s.n_layers},
              {"num_attention_heads", s.n_heads},
              {"num_key_value_heads", s.n_kv_heads},
              {"head_dim", s.head_dim},
              {"max_position_embeddings", s.context_length},
              {"rms_norm_eps", c.rms_eps},
              {"rope_theta", c.rope.theta},
              {"rope_scaling", std::move(scaling)},
              {"hidden_act", "silu"},
              {"tie_word_embeddings", c.tied_head},
              {"bos_token_id", id_or_null(tokenizer.bos)},
              {"eos_token_id", end_ids(end_tokens)},
              {"pad_token_id", id_or_null(tokenizer.pad)},
              {"torch_dtype", std::string(dtype_name(dtype))},
              {"use_cache", true}};
  if (c.arch->name == "llama") out["mlp_bias"] = false;
  if (!c.arch->switches.qkv_bias) {
    if (c.attention_bias != c.output_bias)
      return unsupported("a bias of q, k and v without one of the attention's output");
    out["attention_bias"] = c.attention_bias;
  }
  PF_TRY(windows(c, out));
  return out;
}

Json hf_generation_config(const GgufTokenizerSpec& tokenizer,
                          const std::vector<int32_t>& end_tokens) {
  Json out = Json::object();
  if (tokenizer.bos >= 0) out["bos_token_id"] = tokenizer.bos;
  if (!end_tokens.empty()) out["eos_token_id"] = end_ids(end_tokens);
  if (tokenizer.pad >= 0) out["pad_token_id"] = tokenizer.pad;
  return out;
}

}  // namespace pagefold
