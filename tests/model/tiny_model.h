// Tiny models for tests, written as Hugging Face folders and GGUF files from one config.json.
// A weight is computed from its tensor's Hugging Face name and its element's index, by the rule of
// tools/record_models.py: k * 2^-e, k in -8..7, which all 16-bit types, Q4_0, Q4_1 and Q8_0 hold
// without loss.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/json.h"
#include "support/gguf_writer.h"
#include "support/quantize.h"
#include "support/safetensors_writer.h"

namespace pagefold::testing {

inline uint64_t fnv1a(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325ull;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  return h;
}
inline uint64_t splitmix(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

struct TinyTensor {
  std::string name;            // as Hugging Face writes it
  std::vector<int64_t> shape;  // [n] or [n_out, n_in]
  std::vector<float> values;
  float step = 1;  // matrices: values are integers in -8..7 times this
};

inline TinyTensor tiny_tensor(const std::string& name, const std::vector<int64_t>& shape) {
  TinyTensor t{name, shape, {}, 1};
  const int64_t n_in = shape.back(), n = shape.size() == 2 ? shape[0] * n_in : n_in;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  t.step = has("embed_tokens") ? 0.125f : has("q_proj") || has("k_proj") ? 0.0625f : 0.03125f;
  const uint64_t seed = fnv1a(name);
  for (int64_t i = 0; i < n; ++i) {
    auto k =
        static_cast<float>(static_cast<int>(splitmix(seed, static_cast<uint64_t>(i)) >> 60) - 8);
    if (name.ends_with("bias")) {
      k /= 16;
    } else if (shape.size() == 1) {
      k = 1 + k / 32;
    } else {
      if (i % n_in % 32 == 0) k = -8;  // both ends of the range in each block
      if (i % n_in % 32 == 16) k = 7;
      k *= t.step;
    }
    t.values.push_back(k);
  }
  return t;
}

inline std::vector<int32_t> tiny_tokens(int64_t n, int64_t vocab = 160) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) {
    out.push_back(static_cast<int32_t>(splitmix(fnv1a("tokens"), static_cast<uint64_t>(i)) %
                                       static_cast<uint64_t>(vocab)));
  }
  return out;
}

// The numbers of a config.json that shapes depend on.
struct TinyShape {
  std::string cls;
  int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim;
  bool tied, qkv_bias, out_bias, qk_norm;
  explicit TinyShape(const Json& c) {
    const auto number = [&](const char* key, int64_t fallback) {
      return c.contains(key) && !c[key].is_null() ? c[key].get<int64_t>() : fallback;
    };
    cls = c["architectures"][0].get<std::string>();
    vocab = number("vocab_size", 0);
    hidden = number("hidden_size", 0);
    ffn = number("intermediate_size", 0);
    layers = number("num_hidden_layers", 0);
    heads = number("num_attention_heads", 0);
    kv_heads = number("num_key_value_heads", heads);
    head_dim = number("head_dim", hidden / heads);
    tied = c.value("tie_word_embeddings", false);
    out_bias = c.value("attention_bias", false);
    qkv_bias = out_bias || cls.starts_with("Qwen2");
    qk_norm = cls.starts_with("Qwen3");
  }
};

inline std::vector<TinyTensor> tiny_tensors(const Json& config) {
  const TinyShape s(config);
  std::vector<TinyTensor> all;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    all.push_back(tiny_tensor(name, shape));
  };
  const auto linear = [&](const std::string& name, int64_t n_out, int64_t n_in, bool bias) {
    add(name + ".weight", {n_out, n_in});
    if (bias) add(name + ".bias", {n_out});
  };
  add("model.embed_tokens.weight", {s.vocab, s.hidden});
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string p = fmt::format("model.layers.{}.", i);
    add(p + "input_layernorm.weight", {s.hidden});
    linear(p + "self_attn.q_proj", s.heads * s.head_dim, s.hidden, s.qkv_bias);
    linear(p + "self_attn.k_proj", s.kv_heads * s.head_dim, s.hidden, s.qkv_bias);
    linear(p + "self_attn.v_proj", s.kv_heads * s.head_dim, s.hidden, s.qkv_bias);
    linear(p + "self_attn.o_proj", s.hidden, s.heads * s.head_dim, s.out_bias);
    if (s.qk_norm) {
      add(p + "self_attn.q_norm.weight", {s.head_dim});
      add(p + "self_attn.k_norm.weight", {s.head_dim});
    }
    add(p + "post_attention_layernorm.weight", {s.hidden});
    linear(p + "mlp.gate_proj", s.ffn, s.hidden, false);
    linear(p + "mlp.up_proj", s.ffn, s.hidden, false);
    linear(p + "mlp.down_proj", s.hidden, s.ffn, false);
  }
  add("model.norm.weight", {s.hidden});
  if (!s.tied) add("lm_head.weight", {s.vocab, s.hidden});
  return all;
}

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  write_bytes(path, to_bytes(text));
}

// shards > 1: with an index; tensors are dealt out in turn.
inline void write_hf(const std::filesystem::path& folder, const Json& config,
                     const std::vector<TinyTensor>& tensors, TensorType type, size_t shards = 1) {
  std::filesystem::create_directories(folder);
  write_text(folder / "config.json", dump_json(config));
  std::vector<SafetensorsWriter> files(shards);
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  const auto file_name = [&](size_t i) {
    return shards == 1 ? std::string("model.safetensors")
                       : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards);
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TinyTensor& t = tensors[i];
    files[i % shards].add_tensor(t.name, type, t.shape, quantize(type, t.values));
    index["weight_map"][t.name] = file_name(i % shards);
  }
  for (size_t i = 0; i < shards; ++i) files[i].write_to(folder / file_name(i));
  if (shards > 1) write_text(folder / "model.safetensors.index.json", dump_json(index));
}

// "model.layers.1.self_attn.q_proj.bias" -> "blk.1.attn_q.bias".
inline std::string gguf_name(const std::string& hf) {
  static const std::vector<std::pair<std::string, std::string>> parts = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers", "blk"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  std::string out = hf;
  for (const auto& [from, to] : parts) {
    if (const size_t at = out.find(from); at != std::string::npos) out.replace(at, from.size(), to);
  }
  return out;
}

// Llama converters write rows (half, pair) of a head as (pair, half), so that pairs are adjacent.
inline void permute_heads(TinyTensor& t, int64_t head_dim) {
  const int64_t n = t.shape.size() == 2 ? t.shape[1] : 1, half = head_dim / 2;
  const std::vector<float> old = t.values;
  for (int64_t row = 0; row < t.shape[0]; ++row) {
    const int64_t in_head = row % head_dim;
    const int64_t from = row - in_head + in_head % 2 * half + in_head / 2;
    std::copy_n(old.begin() + from * n, n, t.values.begin() + row * n);
  }
}

// A matrix of integer multiples of a power of two, without the support quantiser's scale choice.
inline Bytes lossless_q8_0(const TinyTensor& t) {
  Bytes out;
  for (size_t i = 0; i < t.values.size(); ++i) {
    if (i % 32 == 0) append_raw(out, f32_to_f16(t.step));
    append_raw(out, static_cast<int8_t>(t.values[i] / t.step));
  }
  return out;
}

inline void add_gguf_rope(GgufWriter& w, const std::string& arch, const Json& rope) {
  const std::string type = rope.value("rope_type", rope.value("type", "default"));
  if (type != "linear" && type != "yarn") return;
  const double factor = rope["factor"].get<double>();
  const std::string p = arch + ".rope.scaling.";
  w.add(p + "type", type);
  w.add(p + "factor", static_cast<float>(factor));
  if (type == "linear") return;
  w.add(p + "original_context_length", rope["original_max_position_embeddings"].get<uint32_t>());
  w.add(p + "yarn_beta_fast", rope.value("beta_fast", 32.0f));
  w.add(p + "yarn_beta_slow", rope.value("beta_slow", 1.0f));
  if (rope.contains("attention_factor")) {  // GGUF's multiplies YaRN's own
    w.add(p + "attn_factor", static_cast<float>(rope["attention_factor"].get<double>() /
                                                (0.1 * std::log(factor) + 1)));
  }
}

// What converters compute for Llama 3: the divisor of each frequency.
inline std::vector<float> llama3_divisors(const Json& rope, double theta, int64_t head_dim) {
  std::vector<float> out;
  const double factor = rope["factor"], low = rope["low_freq_factor"],
               high = rope["high_freq_factor"], context = rope["original_max_position_embeddings"];
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double turns =
        context /
        (2 * M_PI * std::pow(theta, static_cast<double>(i) / static_cast<double>(head_dim)));
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    out.push_back(static_cast<float>(1 / ((1 - kept) / factor + kept)));
  }
  return out;
}

// layer_window: [layers], 0: full.
inline GgufWriter gguf_metadata(const Json& c, const std::vector<int64_t>& layer_window) {
  const TinyShape s(c);
  const std::string arch = s.cls.starts_with("Qwen2")   ? "qwen2"
                           : s.cls.starts_with("Qwen3") ? "qwen3"
                                                        : "llama";
  GgufWriter w;
  const auto u32 = [&](const char* key, int64_t v) {
    w.add(arch + "." + key, static_cast<uint32_t>(v));
  };
  w.add("general.architecture", arch);
  u32("block_count", s.layers);
  u32("embedding_length", s.hidden);
  u32("feed_forward_length", s.ffn);
  u32("attention.head_count", s.heads);
  u32("attention.head_count_kv", s.kv_heads);
  u32("attention.key_length", s.head_dim);
  u32("attention.value_length", s.head_dim);
  u32("context_length", c["max_position_embeddings"].get<int64_t>());
  u32("vocab_size", s.vocab);
  if (arch == "llama") u32("rope.dimension_count", s.head_dim);
  w.add(arch + ".attention.layer_norm_rms_epsilon", c["rms_norm_eps"].get<float>());
  w.add(arch + ".rope.freq_base", c["rope_theta"].get<float>());
  if (c.contains("rope_scaling")) add_gguf_rope(w, arch, c["rope_scaling"]);
  int64_t window = 0;
  std::vector<bool> pattern;
  for (const int64_t v : layer_window) {
    window = std::max(window, v);
    pattern.push_back(v > 0);
  }
  if (window > 0) u32("attention.sliding_window", window);
  if (std::find(pattern.begin(), pattern.end(), false) != pattern.end() && window > 0)
    w.add(arch + ".attention.sliding_window_pattern", pattern);
  return w;
}

inline void add_gguf_tensors(GgufWriter& w, const Json& c, std::vector<TinyTensor> tensors,
                             TensorType type) {
  const TinyShape s(c);
  const bool adjacent = !s.cls.starts_with("Qwen");
  for (TinyTensor& t : tensors) {
    const bool q_or_k =
        t.name.find("q_proj") != std::string::npos || t.name.find("k_proj") != std::string::npos;
    if (adjacent && q_or_k) permute_heads(t, s.head_dim);
    const TensorType kept = t.shape.size() == 2 ? type : TensorType::F32;
    w.add_tensor(gguf_name(t.name), kept, t.shape,
                 kept == TensorType::Q8_0 ? lossless_q8_0(t) : quantize(kept, t.values));
  }
  if (c.contains("rope_scaling") && c["rope_scaling"].value("rope_type", "") == "llama3") {
    const auto d = llama3_divisors(c["rope_scaling"], c["rope_theta"].get<double>(), s.head_dim);
    w.add_tensor("rope_freqs.weight", TensorType::F32, {static_cast<int64_t>(d.size())},
                 quantize(TensorType::F32, d));
  }
}

inline void write_gguf(const std::filesystem::path& path, const Json& config,
                       const std::vector<int64_t>& layer_window, TensorType type) {
  GgufWriter w = gguf_metadata(config, layer_window);
  add_gguf_tensors(w, config, tiny_tensors(config), type);
  w.write_to(path);
}

}  // namespace pagefold::testing
