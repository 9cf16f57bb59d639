#include "cli/describe.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "calc/kv_bytes.h"
#include "model/kv_recipe.h"
#include "model/load.h"
#include "model/quant/weight_count.h"

namespace pagefold {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxJsonBytes = 64 << 20;
constexpr int64_t kMaxLayers = 1 << 20;

void add_tensors(const std::vector<TensorInfo>& infos, ModelDescription& out) {
  for (const TensorInfo& info : infos) {
    const TensorTypeInfo& type = tensor_type_info(info.type);
    out.tensors.push_back({info.name, std::string(type.name), info.shape, info.data.size(),
                           info.elements(), weights_in(info, out.quant)});
  }
  out.types = tensor_types(infos);
  out.stored.tensors = stored_matrix_type(infos);
}

// Every layer has as many KV heads as the key says; GGUF may say it layer by layer.
Status gguf_kv_heads(const GgufFile& file, const std::string& key, ModelDescription& d) {
  const GgufValue* value = file.get(key);
  const auto copy = [&](const auto& list) {
    for (const auto v : list) d.kv_heads.push_back(static_cast<int64_t>(v));
  };
  if (value && std::holds_alternative<std::vector<uint64_t>>(*value)) {
    copy(std::get<std::vector<uint64_t>>(*value));
  } else if (value && std::holds_alternative<std::vector<int64_t>>(*value)) {
    copy(std::get<std::vector<int64_t>>(*value));
  } else {
    PF_ASSIGN(const int64_t heads, file.get_int(key, d.n_heads));
    d.kv_heads.assign(static_cast<size_t>(d.n_layers), heads);
  }
  return ok_status();
}

Status read_gguf_dims(const GgufFile& file, ModelDescription& d) {
  const auto key = [&](const char* name) { return d.architecture + "." + name; };
  PF_ASSIGN(d.n_layers, file.get_int(key("block_count"), 0));
  PF_ASSIGN(d.hidden, file.get_int(key("embedding_length"), 0));
  PF_ASSIGN(d.context_length, file.get_int(key("context_length"), 0));
  PF_ASSIGN(d.sliding_window, file.get_int(key("attention.sliding_window"), 0));
  PF_ASSIGN(d.rope_base, file.get_float(key("rope.freq_base"), 0));
  if (d.n_layers < 0 || d.n_layers > kMaxLayers) {
    return bad_data("{}: {} layers", d.path, d.n_layers);
  }
  // Some families give these layer by layer; then they are left out here.
  const auto optional_int = [&](const char* name) {
    const auto value = file.get_int(key(name), 0);
    return value.ok() ? *value : 0;
  };
  d.n_heads = optional_int("attention.head_count");
  d.ffn = optional_int("feed_forward_length");
  d.vocab_size = optional_int("vocab_size");
  const int64_t derived = d.n_heads > 0 ? d.hidden / d.n_heads : 0;
  PF_ASSIGN(d.key_dim, file.get_int(key("attention.key_length"), derived));
  PF_ASSIGN(d.value_dim, file.get_int(key("attention.value_length"), derived));
  return gguf_kv_heads(file, key("attention.head_count_kv"), d);
}

int64_t int_of(const Json& object, const char* key, int64_t fallback) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : fallback;
}

std::string string_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

void read_folder_dims(const Json& config, ModelDescription& d) {
  // Multimodal checkpoints keep the language model's numbers one level down.
  const bool nested = config.contains("text_config") && config["text_config"].is_object();
  const Json& c = nested ? config["text_config"] : config;
  d.n_layers = int_of(c, "num_hidden_layers", 0);
  d.n_heads = int_of(c, "num_attention_heads", 0);
  d.hidden = int_of(c, "hidden_size", 0);
  d.ffn = int_of(c, "intermediate_size", 0);
  d.vocab_size = int_of(c, "vocab_size", 0);
  d.context_length = int_of(c, "max_position_embeddings", 0);
  d.sliding_window = int_of(c, "sliding_window", 0);
  if (c.contains("use_sliding_window") && c["use_sliding_window"] == false) d.sliding_window = 0;
  if (c.contains("rope_theta") && c["rope_theta"].is_number())
    d.rope_base = c["rope_theta"].get<double>();
  d.key_dim = int_of(c, "head_dim", d.n_heads > 0 ? d.hidden / d.n_heads : 0);
  d.value_dim = d.key_dim;
  if (d.n_layers > 0 && d.n_layers <= kMaxLayers) {
    d.kv_heads.assign(static_cast<size_t>(d.n_layers), int_of(c, "num_key_value_heads", d.n_heads));
  }
}

std::string folder_chat_template(const Json& tokenizer_config) {
  if (!tokenizer_config.is_object() || !tokenizer_config.contains("chat_template")) return {};
  const Json& t = tokenizer_config["chat_template"];
  if (t.is_string()) return t.get<std::string>();
  if (!t.is_array()) return {};
  // Several named ones: "default" is the one that chat uses.
  for (const Json& item : t) {
    if (item.is_object() && string_of(item, "name") == "default")
      return string_of(item, "template");
  }
  return {};
}

Result<Json> read_json_file(const fs::path& path) {
  PF_ASSIGN(const std::string text, read_file(path, kMaxJsonBytes));
  auto json = parse_json(text);
  if (!json.ok()) return with_context(json.status(), path.string());
  if (!json->is_object()) return bad_data("{}: expected an object", path.string());
  return json;
}

}  // namespace

uint64_t ModelDescription::weight_bytes() const {
  uint64_t sum = 0;
  for (const TensorLine& t : tensors) sum += t.bytes;
  return sum;
}

int64_t ModelDescription::parameters() const {
  int64_t sum = 0;
  for (const TensorLine& t : tensors) sum += t.weights;
  return sum;
}

std::string ModelDescription::weight_format() const {
  if (quant.method != QuantMethod::none && quant.method != QuantMethod::gguf)
    return quant.description();
  std::map<std::string, uint64_t> bytes;
  for (const TensorLine& t : tensors) bytes[t.type] += t.bytes;
  const auto best = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return best == bytes.end() ? "none" : best->first;
}

double ModelDescription::bits_per_weight() const {
  const int64_t n = parameters();
  return n > 0 ? 8.0 * static_cast<double>(weight_bytes()) / static_cast<double>(n) : 0;
}

uint64_t ModelDescription::kv_bytes_per_token(const KvFormat& cache) const {
  calc::CacheTypes types;
  types.k.own = cache.k;
  types.v.own = cache.v;
  types.group = cache.group;
  uint64_t sum = 0;
  for (const int64_t heads : kv_heads) {
    if (heads <= 0 || key_dim <= 0 || value_dim <= 0) continue;
    sum += calc::layer_token_bytes(calc::full_layers(1, heads, key_dim, value_dim), types);
  }
  return sum;
}

Result<ModelDescription> describe_gguf(const GgufFile& file, const std::string& path) {
  ModelDescription d;
  d.path = path;
  d.format = "gguf";
  d.quant.method = QuantMethod::gguf;
  PF_ASSIGN(d.architecture, file.get_string("general.architecture", ""));
  d.stored.model_type = d.architecture;
  PF_TRY(read_gguf_dims(file, d));
  if (const auto text = file.get_string("tokenizer.chat_template", ""); text.ok()) {
    d.chat_template = *text;
  }
  for (const auto& [key, value] : file.metadata()) d.metadata.emplace_back(key, to_display(value));
  add_tensors(file.tensors(), d);
  const TensorInfo* table = file.find("token_embd.weight");
  if (table && !table->shape.empty()) d.vocab_size = table->shape[0];
  return d;
}

Result<ModelDescription> describe_folder(const Json& config, const Json& tokenizer_config,
                                         const SafetensorsSet& weights, const std::string& path,
                                         Result<QuantConfig> quant) {
  ModelDescription d;
  if (quant.ok()) {
    d.quant = *std::move(quant);
  } else {
    d.quant_problem = message_of(quant.status());
  }
  d.path = path;
  d.format = "safetensors";
  d.architecture = d.stored.model_type = string_of(config, "model_type");
  d.stored.config = string_of(config, config.contains("dtype") ? "dtype" : "torch_dtype");
  PF_TRY(read_kv_scheme(config, path, d.kv));
  if (config.contains("architectures") && config["architectures"].is_array() &&
      !config["architectures"].empty() && config["architectures"][0].is_string()) {
    d.metadata.emplace_back("architectures", config["architectures"][0].get<std::string>());
  }
  for (const auto& [key, value] : config.items()) {
    if (value.is_primitive()) d.metadata.emplace_back(key, dump_json(value));
  }
  add_tensors(weights.tensors(), d);
  read_folder_dims(config, d);
  d.chat_template = folder_chat_template(tokenizer_config);
  return d;
}

Result<ModelDescription> describe_model(const std::string& path) {
  std::error_code ec;
  if (!fs::is_directory(path, ec)) {
    PF_ASSIGN(const GgufFile file, GgufFile::open(path));
    return describe_gguf(file, path);
  }
  const fs::path folder = path;
  PF_ASSIGN(const Json config, read_json_file(folder / "config.json"));
  Json tokenizer_config;
  if (fs::exists(folder / "tokenizer_config.json", ec)) {
    PF_ASSIGN(tokenizer_config, read_json_file(folder / "tokenizer_config.json"));
  }
  PF_ASSIGN(const SafetensorsSet weights, SafetensorsSet::open(folder));
  PF_ASSIGN(ModelDescription d, describe_folder(config, tokenizer_config, weights, path,
                                                read_quant_config(folder, config)));
  if (fs::exists(folder / "chat_template.jinja", ec)) {
    PF_ASSIGN(d.chat_template, read_file(folder / "chat_template.jinja", kMaxJsonBytes));
  }
  return d;
}

}  // namespace pagefold
