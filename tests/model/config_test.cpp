// Fields that are absent, null or in two places: the defaults of the Transformers classes and of
// the GGUF specification.
#include "model/golden_models.h"

namespace pagefold::testing {
namespace {

Json base(const char* cls) {
  Json c = golden_model("llama").config;
  c["architectures"] = {cls};
  c["num_hidden_layers"] = 3;
  for (const char* key : {"sliding_window", "attention_bias", "tie_word_embeddings"}) c.erase(key);
  return c;
}
ModelConfig read(const Json& c) {
  auto config = config_from_hf(c, "config.json");
  if (!config.ok()) {
    ADD_FAILURE() << config.status();
    return {};
  }
  return *std::move(config);
}
std::vector<int64_t> windows(Json c, const Json& fields) {
  c.update(fields);
  return read(c).shape.layer_window;
}
using Windows = std::vector<int64_t>;

TEST(HfConfig, WindowsFollowTheClass) {
  const Json llama = base("LlamaForCausalLM"), mistral = base("MistralForCausalLM"),
             qwen = base("Qwen2ForCausalLM");
  EXPECT_EQ(windows(llama, Json::object()), Windows(3, 0));
  EXPECT_EQ(windows(llama, {{"sliding_window", nullptr}}), Windows(3, 0));
  EXPECT_EQ(windows(mistral, Json::object()), Windows(3, 4096));
  EXPECT_EQ(windows(mistral, {{"sliding_window", nullptr}}), Windows(3, 0));
  EXPECT_EQ(windows(mistral, {{"sliding_window", 5}, {"max_window_layers", 2}}), Windows(3, 5));
  EXPECT_EQ(windows(qwen, {{"sliding_window", 5}}), Windows(3, 0));
  EXPECT_EQ(windows(qwen, {{"sliding_window", 5}, {"use_sliding_window", true}}), Windows(3, 0));
  const Json on = {{"use_sliding_window", true}, {"max_window_layers", 1}};
  EXPECT_EQ(windows(qwen, on), (Windows{0, 4096, 4096}));
  Json null = on;
  null["sliding_window"] = nullptr;
  EXPECT_EQ(windows(qwen, null), Windows(3, 0));
  Json types = on;
  types["sliding_window"] = 7;
  types["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(windows(qwen, types), (Windows{7, 0, 0}));
}

TEST(HfConfig, DefaultsOfTheClasses) {
  for (const char* cls :
       {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    Json c = base(cls);
    c.erase("rms_norm_eps");
    c.erase("rope_theta");
    c.erase("num_key_value_heads");
    const ModelConfig m = read(c);
    const bool qwen2 = m.arch->name == "qwen2", qwen3 = m.arch->name == "qwen3";
    EXPECT_FALSE(m.tied_head) << cls;
    EXPECT_EQ(m.rms_eps, 1e-6) << cls;
    EXPECT_EQ(m.rope.theta, 10000) << cls;
    EXPECT_EQ(m.shape.n_kv_heads, 4) << cls;
    EXPECT_EQ(m.shape.head_dim, qwen3 ? 128 : 16) << cls;
    EXPECT_EQ(m.attention_bias, qwen2) << cls;
    EXPECT_FALSE(m.output_bias) << cls;
    EXPECT_TRUE(m.rope_half_layout) << cls;
  }
  Json c = base("Qwen2ForCausalLM");
  c["attention_bias"] = true;  // Qwen2 has no bias after attention, whatever this says
  EXPECT_FALSE(read(c).output_bias);
}

TEST(HfConfig, RopeFieldsInEitherPlace) {
  Json c = base("LlamaForCausalLM");
  c["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500.0}};
  EXPECT_EQ(read(c).rope.theta, 500);
  c["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};  // the older one wins
  EXPECT_EQ(read(c).rope.kind, RopeKind::linear);
  EXPECT_EQ(read(c).rope.theta, 10000);
  c["rope_scaling"] = Json::object();
  EXPECT_EQ(read(c).rope.theta, 500);
  c["rope_scaling"] = {{"type", "dynamic"}, {"rope_type", "default"}};  // rope_type wins over type
  EXPECT_EQ(read(c).rope.kind, RopeKind::standard);
}

TEST(HfConfig, YarnFactorAndContext) {
  Json c = base("LlamaForCausalLM");
  c["max_position_embeddings"] = 4096;
  c["rope_scaling"] = {{"rope_type", "yarn"}, {"original_max_position_embeddings", 1024}};
  EXPECT_EQ(read(c).rope.factor, 4);
  c["rope_scaling"]["factor"] = 8.0;
  EXPECT_EQ(read(c).rope.factor, 8);
  EXPECT_EQ(read(c).rope.original_context, 1024);
  c["original_max_position_embeddings"] = 2048;
  EXPECT_EQ(read(c).rope.original_context, 2048);
  c.erase("original_max_position_embeddings");
  c["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(read(c).rope.original_context, 4096);
  c["rope_scaling"]["mscale"] = 1.0;  // one alone says nothing
  EXPECT_EQ(read(c).rope.attention_factor, 0);
}

ModelConfig read_gguf(const std::function<void(GgufWriter&)>& add, Windows layer_window = {}) {
  Json c = base("LlamaForCausalLM");
  GgufWriter w = gguf_metadata(c, layer_window);
  add(w);
  const Bytes bytes = w.finish();
  const auto file = GgufFile::parse(bytes, "m.gguf");
  auto config = config_from_gguf(file.value());
  if (!config.ok()) {
    ADD_FAILURE() << config.status();
    return {};
  }
  return *std::move(config);
}

TEST(GgufConfig, RopeScaling) {
  const auto scaling = [](const char* type, const char* key, float factor) {
    return read_gguf([&](GgufWriter& w) {
             if (*type) w.add("llama.rope.scaling.type", type);
             w.add(std::string("llama.") + key, factor);
           })
        .rope;
  };
  EXPECT_EQ(scaling("", "rope.scaling.factor", 4).kind, RopeKind::linear);
  EXPECT_EQ(scaling("", "rope.scale_linear", 4).kind, RopeKind::linear);
  EXPECT_EQ(scaling("", "rope.scale_linear", 4).factor, 4);
  EXPECT_EQ(scaling("", "rope.scaling.factor", 0).kind, RopeKind::standard);
  EXPECT_EQ(scaling("none", "rope.scaling.factor", 4).kind, RopeKind::standard);
  EXPECT_EQ(scaling("yarn", "rope.scaling.factor", 4).kind, RopeKind::yarn);
  EXPECT_EQ(scaling("yarn", "rope.scaling.factor", 4).attention_factor, 0);
  EXPECT_EQ(scaling("yarn", "rope.scaling.factor", 4).original_context, 512);
}

TEST(GgufConfig, YarnMagnitude) {
  const auto magnitude = [](float attention, float log_multiplier) {
    const ModelConfig c = read_gguf([&](GgufWriter& w) {
      w.add("llama.rope.scaling.type", "yarn");
      w.add("llama.rope.scaling.factor", 4.0f);
      w.add("llama.rope.scaling.attn_factor", attention);
      w.add("llama.rope.scaling.yarn_log_multiplier", log_multiplier);
    });
    return rope_frequencies(c.rope).magnitude;
  };
  const double own = 0.1 * std::log(4.0) + 1;
  EXPECT_NEAR(magnitude(1, 0), own, 1e-9);
  EXPECT_NEAR(magnitude(0.5, 0), 0.5 * own, 1e-9);
  EXPECT_NEAR(magnitude(1, 0.5), own / (0.05 * std::log(4.0) + 1), 1e-9);
}

TEST(GgufConfig, WindowPatterns) {
  const auto with = [](const char* key, auto value) {
    return read_gguf([&](GgufWriter& w) { w.add(key, value); }, {9, 9, 9}).shape.layer_window;
  };
  EXPECT_EQ(read_gguf([](GgufWriter&) {}, {9, 9, 9}).shape.layer_window, Windows(3, 9));
  EXPECT_EQ(read_gguf([](GgufWriter&) {}, {9, 0, 9}).shape.layer_window, (Windows{9, 0, 9}));
  EXPECT_EQ(with("llama.attention.sliding_window_pattern", uint32_t{3}), (Windows{9, 9, 0}));
  EXPECT_EQ(with("llama.attention.sliding_window_pattern", uint32_t{2}), (Windows{9, 0, 9}));
}

}  // namespace
}  // namespace pagefold::testing
