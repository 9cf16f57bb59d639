#include "calc/config_json.h"

#include <algorithm>
#include <cctype>

#include "calc/config_fields.h"
#include "calc/config_kinds.h"
#include "calc/words.h"

namespace pagefold::calc {
namespace {

// How the layers of a family differ. Defaults are those of the Transformers classes.
enum class Pattern : uint8_t {
  plain,        // all alike; sliding_window counts when it is there
  no_window,    // all alike; sliding_window means nothing
  qwen,         // windows only with use_sliding_window, from max_window_layers on
  alternating,  // the first slides, the second does not, ...
  every,        // each `sliding_window_pattern`-th layer is full
  llama4,
  mimo,
  mla,
  linear,
  nemotron
};
struct Family {
  std::string_view type;
  Pattern pattern;
  int64_t head_dim = 0;  // where the field is absent; 0: hidden / heads
  int64_t every = 0;     // Pattern::every
  int64_t window = 0;    // where the field is absent
};
constexpr Family kFamilies[] = {
    {"llama", Pattern::no_window},
    {"mistral", Pattern::plain, 0, 0, 4096},
    {"mistral3", Pattern::plain},
    {"ministral", Pattern::plain},
    {"mixtral", Pattern::plain},
    {"qwen2", Pattern::qwen},
    {"qwen2_moe", Pattern::qwen},
    {"qwen3", Pattern::qwen, 128},
    {"qwen3_moe", Pattern::qwen},
    {"phi", Pattern::no_window},
    {"phi3", Pattern::plain},
    {"phimoe", Pattern::plain},
    {"gemma", Pattern::no_window, 256},
    {"gemma2", Pattern::alternating, 256, 0, 4096},
    {"gemma3_text", Pattern::every, 256, 6, 4096},
    {"gemma3", Pattern::every, 256, 6, 4096},
    {"gemma3n_text", Pattern::every, 256, 5, 512},
    {"gemma3n", Pattern::every, 256, 5, 512},
    {"gemma4_text", Pattern::every, 256, 6, 512},
    {"gemma4", Pattern::every, 256, 6, 512},
    {"gpt_oss", Pattern::alternating, 64, 0, 128},
    {"olmo", Pattern::no_window},
    {"olmo2", Pattern::no_window},
    {"olmo3", Pattern::every, 0, 4, 4096},
    {"olmoe", Pattern::no_window},
    {"falcon", Pattern::no_window},
    {"cohere", Pattern::no_window},
    {"cohere2", Pattern::every, 0, 4, 4096},
    {"granite", Pattern::no_window},
    {"granitemoe", Pattern::no_window},
    {"stablelm", Pattern::no_window},
    {"starcoder2", Pattern::plain},
    {"smollm3", Pattern::no_window},
    {"exaone4", Pattern::every, 0, 4},
    {"glm", Pattern::no_window, 128},
    {"glm4", Pattern::no_window, 128},
    {"glm4_moe", Pattern::no_window, 128},
    {"hunyuan", Pattern::no_window},
    {"hunyuan_v1_moe", Pattern::no_window},
    {"gpt_neox", Pattern::no_window},
    {"gpt2", Pattern::no_window},
    {"internlm2", Pattern::no_window},
    {"baichuan", Pattern::no_window},
    {"yi", Pattern::no_window},
    {"minicpm", Pattern::no_window},
    {"ernie4_5", Pattern::no_window},
    {"ernie4_5_moe", Pattern::no_window},
    {"seed_oss", Pattern::no_window, 128},
    {"llama4_text", Pattern::llama4},
    {"llama4", Pattern::llama4},
    {"mimo_v2", Pattern::mimo},
    {"mimo_v2_flash", Pattern::mimo},
    {"deepseek_v2", Pattern::mla},
    {"deepseek_v3", Pattern::mla},
    {"deepseek_v32", Pattern::mla},
    {"kimi_k2", Pattern::mla},
    {"glm_moe_dsa", Pattern::mla},
    {"glm4_moe_lite", Pattern::mla},
    {"minicpm3", Pattern::mla},
    {"qwen3_next", Pattern::linear, 256},
    {"qwen3_5", Pattern::linear, 256},
    {"qwen3_5_text", Pattern::linear, 256},
    {"qwen3_5_moe", Pattern::linear, 256},
    {"nemotron_h", Pattern::nemotron},
};

Result<const Family*> family_of(const std::string& type, std::string_view where) {
  for (const Family& f : kFamilies) {
    if (f.type == type) return &f;
  }
  std::string known;
  for (const Family& f : kFamilies) list(known, f.type);
  return unsupported("{}: unknown architecture '{}' (model_type); known: {}", where, shown(type),
                     known);
}

Result<std::string> type_of(const Json& config, std::string_view where) {
  const ConfigFields f(config, where);
  PF_ASSIGN(std::string type, f.text("model_type"));
  if (!type.empty()) return type;
  // Files written by hand name the class alone: "LlamaForCausalLM" -> "llama".
  PF_ASSIGN(const std::vector<std::string> classes, f.words("architectures"));
  if (classes.empty()) {
    return bad_data("{}: neither 'model_type' nor 'architectures' names an architecture", where);
  }
  std::string out;
  for (const char c : classes[0].substr(0, classes[0].find("For"))) {
    if (std::isupper(static_cast<unsigned char>(c)) && !out.empty() &&
        std::islower(static_cast<unsigned char>(out.back()))) {
      out += '_';
    }
    out += lower({&c, 1});
  }
  return out;
}

Status read_common(const ConfigFields& f, Model& m) {
  PF_ASSIGN(m.n_layers, f.required({"num_hidden_layers", "n_layer", "num_layers"}, kMostLayers));
  PF_ASSIGN(m.n_heads, f.count({"num_attention_heads", "n_head"}, 0));
  PF_ASSIGN(m.hidden, f.count({"hidden_size", "n_embd"}, 0));
  PF_ASSIGN(m.ffn, f.count({"intermediate_size", "ffn_hidden_size", "n_inner"}, 0));
  PF_ASSIGN(m.vocab, f.count("vocab_size", 0));
  PF_ASSIGN(m.context,
            f.count({"max_position_embeddings", "n_positions", "max_sequence_length"}, 0));
  m.tied_known = f.has("tie_word_embeddings");
  PF_ASSIGN(m.tied, f.flag("tie_word_embeddings", false));
  PF_ASSIGN(m.draft_layers, f.maybe_zero("num_nextn_predict_layers", 0));
  if (m.draft_layers == 0) {
    PF_ASSIGN(m.draft_layers, f.maybe_zero("mtp_num_hidden_layers", 0));
  }
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    PF_ASSIGN(const int64_t experts, f.maybe_zero(key, 0));
    m.experts = std::max(m.experts, experts);
  }
  return ok_status();
}

}  // namespace

Result<Model> model_from_config(const Json& config, std::string_view where) {
  if (!config.is_object()) return bad_data("{}: expected an object", where);
  const auto nested = config.find("text_config");
  const Json& c = nested != config.end() && nested->is_object() ? *nested : config;
  Model m;
  m.id = std::string(where);
  auto type = type_of(c, where);
  if (!type.ok() && &c != &config) type = type_of(config, where);
  if (!type.ok()) return type.status();
  m.architecture = *type;
  PF_ASSIGN(const Family* family, family_of(m.architecture, where));
  const ConfigFields f(c, where);
  PF_TRY(read_common(f, m));
  if (!f.has("tie_word_embeddings") && &c != &config) {
    const ConfigFields outer(config, where);
    m.tied_known = outer.has("tie_word_embeddings");
    PF_ASSIGN(m.tied, outer.flag("tie_word_embeddings", false));
  }
  for (const Json* object : {&c, &config}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (!m.stored_dtype.empty()) break;
      PF_ASSIGN(m.stored_dtype, ConfigFields(*object, where).text(key));
    }
  }
  const LayerReader reader{f, m, family->head_dim, family->window, family->every};
  switch (family->pattern) {
    case Pattern::mla:
      PF_TRY(reader.mla());
      break;
    case Pattern::linear:
      PF_TRY(reader.linear());
      break;
    case Pattern::nemotron:
      PF_TRY(reader.nemotron());
      break;
    case Pattern::llama4:
      PF_TRY(reader.llama4());
      break;
    case Pattern::mimo:
      PF_TRY(reader.mimo());
      break;
    case Pattern::no_window:
      PF_TRY(reader.attention(Windows::none));
      break;
    case Pattern::plain:
      PF_TRY(reader.attention(Windows::all));
      break;
    case Pattern::qwen:
      PF_TRY(reader.attention(Windows::qwen));
      break;
    case Pattern::alternating:
      PF_TRY(reader.attention(Windows::alternating));
      break;
    case Pattern::every:
      PF_TRY(reader.attention(Windows::every));
      break;
  }
  PF_TRY(check_model(m));
  return m;
}

}  // namespace pagefold::calc
