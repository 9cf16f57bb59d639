#include "api/calc_gguf.h"

#include <algorithm>
#include <map>

#include "base/integer_range.h"
#include "calc/words.h"

namespace pagefold {
namespace {

using calc::LayerGroup;
using calc::LayerKind;

// How windows are spread where the file gives only their width: each `every`-th layer is full;
// 0: windows are not used, or the file says layer by layer; 1: all slide.
struct Family {
  std::string_view name;
  int64_t every = 0;
};
constexpr Family kFamilies[] = {
    {"llama", 1},     {"qwen2", 0},      {"qwen3", 0},    {"qwen2moe", 0},   {"qwen3moe", 0},
    {"phi2", 0},      {"phi3", 1},       {"gemma", 0},    {"gemma2", 2},     {"gemma3", 6},
    {"gemma3n", 5},   {"gpt-oss", 2},    {"olmo", 0},     {"olmo2", 4},      {"olmoe", 0},
    {"falcon", 0},    {"command-r", 0},  {"cohere2", 4},  {"granite", 0},    {"granitemoe", 0},
    {"stablelm", 0},  {"starcoder2", 0}, {"smollm3", 0},  {"exaone4", 4},    {"glm4", 0},
    {"glm4moe", 0},   {"gpt2", 0},       {"gptneox", 0},  {"deepseek2", 0},  {"minicpm", 0},
    {"internlm2", 0}, {"ernie4_5", 0},   {"seed_oss", 0}, {"hunyuan-moe", 0}};

constexpr int64_t kMost = (int64_t{1} << 31) - 1;

struct Keys {
  const GgufFile& file;
  std::string arch;

  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch, name); }
  Result<int64_t> in_range(std::string_view name, int64_t v, int64_t low, int64_t high) const {
    if (v >= low && v <= high) return v;
    return bad_data("{}: key '{}' must be {}, not {}", file.name(), key(name),
                    integer_range(low, high), v);
  }
  Result<int64_t> count(std::string_view name, int64_t fallback) const {
    PF_ASSIGN(const int64_t v, file.get_int(key(name), fallback));
    return in_range(name, v, 0, kMost);
  }
  Result<int64_t> required(std::string_view name, int64_t most = kMost) const {
    if (file.get(key(name)) == nullptr) {
      return bad_data("{}: key '{}' is missing", file.name(), key(name));
    }
    PF_ASSIGN(const int64_t v, file.get_int(key(name), 0));
    return in_range(name, v, 1, most);
  }
  // One number for all layers, or one a layer.
  Result<std::vector<int64_t>> per_layer(std::string_view name, int64_t n, int64_t fallback) const {
    const GgufValue* v = file.get(key(name));
    std::vector<int64_t> out;
    const auto copy = [&](const auto& list) {
      for (const auto x : list) out.push_back(static_cast<int64_t>(x));
    };
    if (v != nullptr && std::holds_alternative<std::vector<uint64_t>>(*v)) {
      copy(std::get<std::vector<uint64_t>>(*v));
    } else if (v != nullptr && std::holds_alternative<std::vector<int64_t>>(*v)) {
      copy(std::get<std::vector<int64_t>>(*v));
    } else {
      PF_ASSIGN(const int64_t all, count(name, fallback));
      out.assign(static_cast<size_t>(n), all);
    }
    if (out.size() != static_cast<size_t>(n)) {
      return bad_data("{}: key '{}' has {} entries for {} layers", file.name(), key(name),
                      out.size(), n);
    }
    for (const int64_t x : out) PF_TRY(in_range(name, x, 0, kMost).status());
    return out;
  }
};

Result<const Family*> family_of(const std::string& arch, const std::string& where) {
  std::string known;
  for (const Family& f : kFamilies) {
    if (f.name == arch) return &f;
    calc::list(known, f.name);
  }
  return unsupported("{}: unknown architecture '{}'; known: {}", where, calc::shown(arch), known);
}

Status add_latent_layers(const Keys& k, calc::Model& m) {
  LayerGroup g;
  g.kind = LayerKind::mla;
  g.layers = m.n_layers;
  g.heads = m.n_heads;
  PF_ASSIGN(g.latent, k.required("attention.kv_lora_rank"));
  PF_ASSIGN(g.rope, k.required("rope.dimension_count"));
  // Newer files give the lengths of the latent under the plain names.
  PF_ASSIGN(const int64_t key_length, k.count("attention.key_length_mla", 0));
  PF_ASSIGN(g.v_dim, k.count("attention.value_length_mla", 0));
  PF_ASSIGN(const int64_t plain, k.count("attention.key_length", 0));
  const int64_t whole = key_length > 0 ? key_length : plain;
  g.nope = std::max<int64_t>(0, whole - g.rope);
  if (g.v_dim == 0) {
    PF_ASSIGN(g.v_dim, k.count("attention.value_length", 0));
  }
  m.groups.push_back(g);
  return ok_status();
}

Status add_attention_layers(const Keys& k, int64_t every, calc::Model& m) {
  const int64_t n = m.n_layers;
  PF_ASSIGN(const std::vector<int64_t> heads, k.per_layer("attention.head_count_kv", n, m.n_heads));
  const int64_t derived = m.n_heads > 0 ? m.hidden / m.n_heads : 0;
  PF_ASSIGN(const int64_t k_dim, k.count("attention.key_length", derived));
  PF_ASSIGN(const int64_t v_dim, k.count("attention.value_length", k_dim));
  PF_ASSIGN(const int64_t window, k.count("attention.sliding_window", 0));
  PF_ASSIGN(const int64_t shared, k.count("attention.shared_kv_layers", 0));
  const GgufValue* spread = k.file.get(k.key("attention.sliding_window_pattern"));
  std::vector<int64_t> slides;
  if (spread != nullptr && std::holds_alternative<std::vector<bool>>(*spread)) {
    for (const bool b : std::get<std::vector<bool>>(*spread)) slides.push_back(b ? 1 : 0);
  } else {
    PF_ASSIGN(const int64_t stated, k.count("attention.sliding_window_pattern", every));
    for (int64_t i = 0; i < n; ++i) {
      slides.push_back(stated == 1 || (stated > 1 && (i + 1) % stated != 0) ? 1 : 0);
    }
  }
  if (slides.size() != static_cast<size_t>(n)) {
    return bad_data("{}: a window pattern of {} layers for {}", k.file.name(), slides.size(), n);
  }
  std::map<std::pair<int64_t, bool>, int64_t> layers;  // KV heads, slides
  int64_t storing = 0;
  for (int64_t i = 0; i < n - std::min(shared, n - 1); ++i) {
    const auto at = static_cast<size_t>(i);
    if (heads[at] == 0) continue;
    ++layers[{heads[at], window > 0 && slides[at] != 0}];
    ++storing;
  }
  for (const auto& [kind, count] : layers) {
    m.groups.push_back(kind.second ? calc::windowed_layers(LayerKind::sliding, count, kind.first,
                                                           k_dim, v_dim, window)
                                   : calc::full_layers(count, kind.first, k_dim, v_dim));
  }
  if (storing < n) {
    LayerGroup none;
    none.kind = LayerKind::none;
    none.layers = n - storing;
    m.groups.push_back(none);
  }
  return ok_status();
}

}  // namespace

Result<calc::Model> calc_model_from_gguf(const GgufFile& file) {
  calc::Model m;
  m.id = file.name();
  PF_ASSIGN(m.architecture, file.get_string("general.architecture", ""));
  PF_ASSIGN(const Family* family, family_of(m.architecture, file.name()));
  const Keys k{file, m.architecture};
  PF_ASSIGN(m.n_layers, k.required("block_count", calc::kMostLayers));
  PF_ASSIGN(m.hidden, k.required("embedding_length"));
  PF_ASSIGN(m.context, k.count("context_length", 0));
  PF_ASSIGN(const std::vector<int64_t> heads, k.per_layer("attention.head_count", m.n_layers, 0));
  m.n_heads = *std::max_element(heads.begin(), heads.end());
  if (const auto ffn = k.count("feed_forward_length", 0); ffn.ok()) m.ffn = *ffn;
  PF_ASSIGN(m.experts, k.count("expert_count", 0));
  if (const TensorInfo* table = file.find("token_embd.weight");
      table != nullptr && table->shape.size() == 2) {
    m.vocab = table->shape[0];
  }
  m.tied = file.find("output.weight") == nullptr;
  m.tied_known = true;
  if (m.architecture == "deepseek2") {
    PF_TRY(add_latent_layers(k, m));
  } else {
    PF_TRY(add_attention_layers(k, family->every, m));
  }
  PF_TRY(calc::check_model(m));
  return m;
}

}  // namespace pagefold
