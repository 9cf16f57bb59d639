// What is not supported or not whole is refused by name, before much is read.
#include <chrono>
#include <limits>

#include "model/golden_models.h"

namespace pagefold::testing {
namespace {

using ::testing::Test;

Status load(const std::filesystem::path& path) {
  const auto start = std::chrono::steady_clock::now();
  bool read = false;
  const Status status = [&]() -> Status {
    PF_ASSIGN(const ModelFiles files, open_model(path));
    NetworkOptions options;
    options.progress = [&](uint64_t, uint64_t) { read = true; };
    return load_network(files, options).status();
  }();
  // Headers show all that is refused here: of a large file nothing was read for it.
  EXPECT_EQ(read, status.ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  return status;
}

void expect_refusal(const Status& status, const std::vector<std::string>& parts) {
  ASSERT_FALSE(status.ok()) << "expected: " << parts.front();
  for (const std::string& part : parts)
    EXPECT_NE(message_of(status).find(part), std::string::npos)
        << "'" << part << "' is not in: " << message_of(status);
}

class HfRefusals : public Test {
 protected:
  Json config_ = golden_model("llama").config;
  std::vector<TinyTensor> tensors_ = tiny_tensors(config_);
  TempFolder folder_;
  // parts: what the message must contain.
  void refused(const std::vector<std::string>& parts) {
    write_hf(folder_.path(), config_, tensors_, TensorType::F16);
    expect_refusal(load(folder_.path()), parts);
  }
  void refused_field(const char* key, const Json& value, std::vector<std::string> parts) {
    const Json before = config_;
    config_[key] = value;
    parts.emplace_back("config.json");
    refused(parts);
    config_ = before;
  }
};

TEST_F(HfRefusals, TheBaseIsFine) {
  write_hf(folder_.path(), config_, tensors_, TensorType::F16);
  EXPECT_TRUE(load(folder_.path()).ok());
}

TEST_F(HfRefusals, ConfigurationsByName) {
  refused_field("architectures", {"GemmaForCausalLM"}, {"GemmaForCausalLM", "Qwen3ForCausalLM"});
  refused_field("architectures", Json::array(), {"architectures"});
  refused_field("hidden_act", "gelu", {"hidden_act", "gelu"});
  refused_field("mlp_bias", true, {"mlp_bias"});
  refused_field("num_local_experts", 8, {"num_local_experts", "8"});
  refused_field("quantization_config", {{"quant_method", "hqq"}}, {"quantization_config", "hqq"});
  refused_field("partial_rotary_factor", 0.5, {"partial_rotary_factor"});
  refused_field("head_dim", 20, {"head_dim 20"});
  refused_field("head_dim", -4294967280ll, {"head_dim"});
  refused_field("num_attention_heads", -4294967292ll, {"num_attention_heads"});
  refused_field("num_attention_heads", "four", {"num_attention_heads", "string"});
  refused_field("num_key_value_heads", 3, {"KV heads"});
  refused_field("num_hidden_layers", 1.5, {"num_hidden_layers"});
  refused_field("vocab_size", nullptr, {"vocab_size", "missing"});
  refused_field("rms_norm_eps", -1.0, {"epsilon"});
  refused_field("rope_theta", 0, {"theta"});
  refused_field("layer_types", {"full_attention"}, {"layer_types"});
  refused_field("layer_types", {"full_attention", "chunked_attention"}, {"chunked_attention"});
  refused_field("layer_types", {"full_attention", "sliding_attention"}, {"sliding_window"});
}

TEST_F(HfRefusals, RopeKindsByName) {
  for (const char* kind : {"dynamic", "longrope", "su", "mrope"}) {
    refused_field("rope_scaling", {{"type", kind}, {"factor", 2.0}}, {kind, "yarn"});
    refused_field("rope_parameters", {{"rope_type", kind}, {"factor", 2.0}}, {kind, "llama3"});
  }
  refused_field("rope_scaling", {{"type", "linear"}}, {"factor"});
  refused_field("rope_scaling", {{"type", "linear"}, {"factor", -1.0}}, {"factor"});
  refused_field("rope_scaling", "linear", {"rope_scaling", "string"});
  refused_field("rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}},
                {"partial_rotary_factor"});
  refused_field("rope_parameters", {{"full_attention", {{"rope_type", "default"}}}},
                {"rope_parameters"});
  refused_field("rope_scaling",
                {{"rope_type", "llama3"},
                 {"factor", 8.0},
                 {"low_freq_factor", 4.0},
                 {"high_freq_factor", 1.0}},
                {"high_freq_factor"});
}

TEST_F(HfRefusals, QwenWindowThatContradictsItself) {
  config_ = golden_model("qwen2_layer_types").config;
  tensors_ = tiny_tensors(config_);
  refused_field("use_sliding_window", false, {"use_sliding_window", "layer_types"});
}

TEST_F(HfRefusals, TensorsByName) {
  const auto all = tensors_;
  const auto find = [&](const std::string& name) {
    return std::find_if(tensors_.begin(), tensors_.end(),
                        [&](const TinyTensor& t) { return t.name == name; });
  };
  tensors_.push_back(tiny_tensor("model.layers.0.self_attn.sinks", {4}));
  refused({"model.safetensors", "model.layers.0.self_attn.sinks", "llama"});
  tensors_ = all;
  tensors_.push_back(tiny_tensor("model.layers.2.input_layernorm.weight", {64}));
  refused({"model.layers.2.input_layernorm.weight"});
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "lm_head.weight",
                           "model.norm.weight", "model.layers.0.self_attn.v_proj.weight"}) {
    tensors_ = all;
    tensors_.erase(find(name));
    refused({folder_.path().string(), name, "missing"});
  }
  tensors_ = all;
  *find("model.layers.1.mlp.up_proj.weight") =
      tiny_tensor("model.layers.1.mlp.up_proj.weight", {64, 96});
  refused({"model.layers.1.mlp.up_proj.weight", "[64, 96]", "[96, 64]"});
  tensors_ = all;
  *find("model.norm.weight") = tiny_tensor("model.norm.weight", {65});
  refused({"model.norm.weight", "[65]", "[64]"});
}

// A bias that the configuration does not announce is refused, not dropped.
TEST_F(HfRefusals, BiasThatTheConfigDenies) {
  tensors_.push_back(tiny_tensor("model.layers.0.self_attn.q_proj.bias", {64}));
  refused({"model.layers.0.self_attn.q_proj.bias"});
  config_["attention_bias"] = true;
  refused({"k_proj.bias", "missing"});
}

// One damaged number makes every answer nonsense: it is found while loading, not while answering.
TEST_F(HfRefusals, NumbersThatAreNotFinite) {
  const auto all = tensors_;
  for (const char* name : {"model.norm.weight", "model.layers.1.mlp.up_proj.weight",
                           "model.layers.1.input_layernorm.weight", "lm_head.weight"}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      tensors_ = all;
      for (TinyTensor& t : tensors_) {
        if (t.name == name) t.values[t.values.size() - 3] = bad;
      }
      write_hf(folder_.path(), config_, tensors_, TensorType::F16);
      const auto files = open_model(folder_.path());
      ASSERT_TRUE(files.ok()) << files.status();
      expect_refusal(load_network(*files, {}).status(), {name, "finite", "model.safetensors"});
    }
  }
}

TEST_F(HfRefusals, TruncatedAndAbsentFiles) {
  write_hf(folder_.path(), config_, tensors_, TensorType::F16, 2);
  ASSERT_TRUE(load(folder_.path()).ok());
  const auto shard = folder_.path() / "model-00002-of-00002.safetensors";
  for (const uintmax_t cut : {uintmax_t{1}, std::filesystem::file_size(shard) / 2}) {
    std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - cut);
    expect_refusal(load(folder_.path()), {"model-00002-of-00002.safetensors"});
  }
  std::filesystem::remove(shard);
  expect_refusal(load(folder_.path()), {"model-00002-of-00002.safetensors"});
  write_text(folder_.path() / "config.json", "{\"architectures\": [");
  expect_refusal(load(folder_.path()), {"config.json"});
  std::filesystem::remove(folder_.path() / "config.json");
  expect_refusal(load(folder_.path()), {"config.json"});
  expect_refusal(load(folder_.path() / "nothing.gguf"), {"nothing.gguf"});
}

class GgufRefusals : public Test {
 protected:
  const Json config_ = golden_model("llama").config;
  TempFolder folder_;
  void refused(const std::function<void(GgufWriter&)>& change, std::vector<std::string> parts,
               std::vector<TinyTensor> tensors) {
    GgufWriter w = gguf_metadata(config_, {});
    if (change) change(w);
    add_gguf_tensors(w, config_, std::move(tensors), TensorType::Q4_1);
    const auto path = folder_.path() / "model.gguf";
    w.write_to(path);
    parts.emplace_back("model.gguf");
    expect_refusal(load(path), parts);
  }
  template <class T>
  void refused_key(const std::string& key, const T& value, const std::vector<std::string>& parts) {
    refused([&](GgufWriter& w) { w.add(key, value); }, parts, tiny_tensors(config_));
  }
};

TEST_F(GgufRefusals, KeysByName) {
  refused_key("llama.expert_count", uint32_t{8}, {"experts"});
  refused_key("llama.rope.scaling.type", "longrope", {"longrope", "yarn"});
  refused_key("llama.rope.scaling.attn_factor", 2.0f, {"llama.rope.scaling.attn_factor"});
  refused(
      [](GgufWriter& w) {
        w.add("llama.rope.scaling.type", "yarn");
        w.add("llama.rope.scaling.factor", 2.0f);
        w.add("llama.rope.scaling.yarn_ext_factor", 0.5f);
      },
      {"llama.rope.scaling.yarn_ext_factor"}, tiny_tensors(config_));
  refused_key("llama.rope.scaling.factor", "two", {"llama.rope.scaling.factor"});
  refused(
      [](GgufWriter& w) {
        w.add("llama.attention.sliding_window", uint32_t{8});
        w.add("llama.attention.sliding_window_pattern", std::vector<bool>{true});
      },
      {"sliding_window_pattern"}, tiny_tensors(config_));
}

TEST_F(GgufRefusals, Architecture) {
  GgufWriter w;
  w.add("general.architecture", "mamba");
  w.write_to(folder_.path() / "m.gguf");
  expect_refusal(load(folder_.path() / "m.gguf"), {"m.gguf", "mamba", "qwen3"});
  GgufWriter none;
  none.write_to(folder_.path() / "n.gguf");
  expect_refusal(load(folder_.path() / "n.gguf"), {"n.gguf", "general.architecture"});
  GgufWriter bare;
  bare.add("general.architecture", "qwen2");
  bare.write_to(folder_.path() / "b.gguf");
  expect_refusal(load(folder_.path() / "b.gguf"), {"b.gguf", "qwen2.block_count"});
}

TEST_F(GgufRefusals, ScalesThatAreNotFinite) {
  for (const TensorType type : {TensorType::Q4_1, TensorType::Q8_0}) {
    const TensorTypeInfo& info = tensor_type_info(type);
    GgufWriter w = gguf_metadata(config_, {});
    add_gguf_tensors(w, config_, tiny_tensors(config_), type);
    const auto path = folder_.path() / "model.gguf";
    w.write_to(path);
    auto bytes = read_file(path, 64 << 20);
    ASSERT_TRUE(bytes.ok());
    uint64_t at = 0;
    {
      const auto files = open_model(path);
      ASSERT_TRUE(files.ok()) << files.status();
      ASSERT_TRUE(load_network(*files, {}).ok());
      for (const TensorInfo& t : files->tensors()) {
        if (t.name == "blk.1.ffn_up.weight")
          at = bytes->find({reinterpret_cast<const char*>(t.data.data()), t.data.size()});
      }
    }
    ASSERT_NE(at, std::string::npos);
    at += static_cast<uint64_t>(info.block_bytes);  // the second block begins with its scale
    (*bytes)[at] = '\0';
    (*bytes)[at + 1] = '\x7e';
    write_text(path, *bytes);
    const auto files = open_model(path);
    ASSERT_TRUE(files.ok()) << files.status();
    expect_refusal(load_network(*files, {}).status(),
                   {"model.gguf", "blk.1.ffn_up.weight", "finite", "scale"});
  }
}

TEST_F(GgufRefusals, Tensors) {
  auto tensors = tiny_tensors(config_);
  tensors.push_back(tiny_tensor("model.layers.0.mlp.gate_proj.bias", {96}));
  refused(nullptr, {"blk.0.ffn_gate.bias"}, tensors);
  tensors = tiny_tensors(config_);
  tensors.erase(tensors.begin() + 4);
  refused(nullptr, {"blk.0.attn_v.weight", "missing"}, tensors);
  refused(
      [](GgufWriter& w) {
        w.add_tensor("rope_freqs.weight", TensorType::F32, {4},
                     quantize(TensorType::F32, std::vector<float>{1, 1, 1, 1}));
      },
      {"frequency divisors"}, tiny_tensors(config_));
}

}  // namespace
}  // namespace pagefold::testing
