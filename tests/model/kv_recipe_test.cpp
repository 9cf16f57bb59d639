// What a checkpoint says of types: --dtype and the recipe of its KV cache.
#include "model/kv_recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>

#include "model/dtype_choice.h"

namespace pagefold {
namespace {

class Scales {
 public:
  Scales& add(const std::string& name, std::vector<float> values,
              TensorType type = TensorType::F32) {
    std::vector<std::byte>& bytes = bytes_.emplace_back(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    const auto n = static_cast<int64_t>(values.size());
    tensors_.push_back({name, type, n == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{n},
                        bytes, "model.safetensors"});
    return *this;
  }
  KvRecipe read(int n_layers) const {
    KvRecipe r;
    const Status s = read_kv_scales(tensors_, n_layers, r);
    EXPECT_TRUE(s.ok()) << s;
    return r;
  }
  std::string refused() const {
    KvRecipe r;
    const Status s = read_kv_scales(tensors_, 2, r);
    EXPECT_FALSE(s.ok());
    return message_of(s);
  }

 private:
  std::deque<std::vector<std::byte>> bytes_;
  std::vector<TensorInfo> tensors_;
};

using Floats = std::vector<float>;

TEST(KvScales, AllNamesThatCheckpointsUse) {
  Scales s;
  s.add("model.layers.0.self_attn.k_scale", {0.5f}).add("model.layers.0.self_attn.v_scale", {2});
  s.add("model.layers.1.self_attn.attn.k_scale", {3})
      .add("model.layers.1.self_attn.attn.v_scale", {4});
  s.add("model.layers.2.self_attn.k_proj.output_scale", {5});
  s.add("model.layers.2.self_attn.v_proj.output_scale", {6});
  s.add("model.layers.3.self_attn.kv_scale", {7});
  s.add("model.layers.10.self_attn.k_proj.k_scale", {8});
  s.add("model.layers.10.self_attn.v_proj.v_scale", {9});
  const KvRecipe r = s.read(11);
  EXPECT_EQ(Floats(r.k_scale.begin(), r.k_scale.begin() + 5), (Floats{0.5f, 3, 5, 7, 1}));
  EXPECT_EQ(Floats(r.v_scale.begin(), r.v_scale.begin() + 5), (Floats{2, 4, 6, 7, 1}));
  EXPECT_EQ(r.k_scale[10], 8);
  EXPECT_EQ(r.v_scale[10], 9);
  EXPECT_FALSE(r.dtype.has_value());
}

TEST(KvScales, PlaceholdersAndMissingOnes) {
  Scales s;
  s.add("model.layers.0.self_attn.k_scale", {-1}).add("model.layers.0.self_attn.v_scale", {2});
  s.add("model.layers.1.self_attn.k_scale", {3});
  const KvRecipe r = s.read(2);
  EXPECT_EQ(r.k_scale, (Floats{2, 3}));
  EXPECT_EQ(r.v_scale, (Floats{2, 3}));
  Scales none;
  none.add("model.layers.0.self_attn.k_scale", {-1}).add("model.layers.0.self_attn.v_scale", {-1});
  EXPECT_TRUE(none.read(2).k_scale.empty());
}

TEST(KvScales, OthersAreNotTheirs) {
  Scales s;
  s.add("model.layers.0.self_attn.k_proj.weight_scale", {2});
  s.add("model.layers.0.mlp.k_scale", {2})
      .add("model.layers.99999999999999999999.self_attn.k_scale", {2});
  s.add("model.layers.7.self_attn.k_scale", {2}).add("model.layers.-1.self_attn.k_scale", {2});
  s.add("model.layers.0.self_attn.o_proj.output_scale", {2}).add("k_scale", {2});
  EXPECT_TRUE(s.read(2).k_scale.empty());
}

TEST(KvScales, WrongOnesAreNamed) {
  const std::string name = "model.layers.1.self_attn.k_scale";
  EXPECT_NE(Scales().add(name, {1, 2}).refused().find(name), std::string::npos);
  EXPECT_NE(Scales().add(name, {NAN}).refused().find(name), std::string::npos);
  EXPECT_NE(Scales().add(name, {INFINITY}).refused().find(name), std::string::npos);
  for (const float bad : {1e-30f, 1e-45f, 1e30f, -1e30f}) {
    const std::string message = Scales().add(name, {bad}).refused();
    EXPECT_NE(message.find(name), std::string::npos) << bad;
    EXPECT_NE(message.find("65504"), std::string::npos) << message;
  }
  EXPECT_EQ(Scales().add(name, {2e-5f}).read(2).k_scale[1], 2e-5f);
  EXPECT_NE(Scales().add(name, {1}, TensorType::I32).refused().find("I32"), std::string::npos);
}

TEST(KvScheme, Fp8OrNone) {
  KvRecipe r;
  const auto read = [&](const char* text) {
    return read_kv_scheme(*parse_json(text), "config", r);
  };
  EXPECT_TRUE(read("{}").ok());
  EXPECT_TRUE(read(R"({"quantization_config": {"kv_cache_scheme": null}})").ok());
  EXPECT_TRUE(read(R"({"quantization_config": {"kv_cache_scheme": "static"}})").ok());
  EXPECT_FALSE(r.dtype.has_value());
  EXPECT_TRUE(read(R"({"quantization_config": {"kv_cache_scheme":
      {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false}}})")
                  .ok());
  EXPECT_EQ(r.dtype, DType::fp8_e4m3);
  for (const char* scheme :
       {R"({"num_bits": 4, "type": "float"})", R"({"num_bits": 8, "type": "int"})", R"("fp8")",
        R"({})", R"([8, "float"])"}) {
    EXPECT_FALSE(
        read(fmt::format(R"({{"compression_config": {{"kv_cache_scheme": {}}}}})", scheme).c_str())
            .ok())
        << scheme;
  }
}

DTypeChoice chosen(const std::string& word, const StoredTypes& stored) {
  auto c = choose_dtype(word, stored);
  EXPECT_TRUE(c.ok()) << c.status();
  return c.ok() ? *c : DTypeChoice{};
}

TEST(DTypeChoice, AutoIsTheConfigThenTheTensors) {
  EXPECT_EQ(chosen("auto", {"float16", DType::bf16, "llama"}).dtype, DType::f16);
  EXPECT_EQ(chosen("auto", {"", DType::f16, "llama"}).dtype, DType::f16);
  EXPECT_EQ(chosen("auto", {"float8_e4m3fn", DType::f16, "llama"}).dtype, DType::f16);
  EXPECT_EQ(chosen("auto", {"", std::nullopt, "llama"}).dtype, DType::bf16);
  EXPECT_EQ(chosen("auto", {"", std::nullopt, "llama"}).info, "");
}

TEST(DTypeChoice, Float32IsLoweredUnderAutoAlone) {
  for (const StoredTypes& s :
       {StoredTypes{"float32", DType::f16, "llama"}, {"", DType::f32, "llama"}}) {
    const DTypeChoice c = chosen("auto", s);
    EXPECT_EQ(c.dtype, DType::bf16);
    EXPECT_NE(c.info.find("--dtype float32"), std::string::npos);
    EXPECT_EQ(chosen("float", s).dtype, DType::f32);
    EXPECT_EQ(chosen("float", s).info, "");
    EXPECT_NE(chosen("half", s).info, "");
    EXPECT_EQ(chosen("half", s).warning, "");
  }
}

TEST(DTypeChoice, ConversionsAreLogged) {
  const StoredTypes s{"bfloat16", DType::bf16, "qwen2"};
  EXPECT_NE(chosen("float32", s).info, "");
  EXPECT_EQ(chosen("float32", s).warning, "");
  EXPECT_NE(chosen("half", s).warning, "");
  EXPECT_EQ(chosen("bfloat16", s).info + chosen("bfloat16", s).warning, "");
}

TEST(DTypeChoice, Refusals) {
  EXPECT_NE(message_of(choose_dtype("fp16", {}).status()).find("--dtype"), std::string::npos);
  const auto gemma = choose_dtype("half", {"bfloat16", DType::bf16, "gemma2"});
  EXPECT_NE(message_of(gemma.status()).find("gemma2"), std::string::npos);
  EXPECT_EQ(chosen("auto", {"float16", DType::f16, "gemma2"}).dtype, DType::bf16);
}

}  // namespace
}  // namespace pagefold
