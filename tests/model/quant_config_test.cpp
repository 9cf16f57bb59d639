// quantization_config objects and --quantization: what is read, chosen and refused.
#include "model/quant/quant_config.h"

#include <gtest/gtest.h>

#include <chrono>

namespace pagefold::testing {
namespace {

QuantConfig parsed(const char* text) {
  const auto json = parse_json(text);
  EXPECT_TRUE(json.ok()) << json.status();
  auto config = parse_quant_config(*json, "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(QuantConfig());
}
WeightScheme scheme(const QuantConfig& c, std::string_view module) {
  const auto s = c.scheme_of(module);
  EXPECT_TRUE(s.ok()) << s.status();
  return s.value_or(WeightScheme());
}
WeightLayout layout(const QuantConfig& c, std::string_view module) {
  return scheme(c, module).layout;
}
void refused(const char* text, const std::vector<std::string>& parts) {
  const auto json = parse_json(text);
  ASSERT_TRUE(json.ok()) << text;
  const Status status = parse_quant_config(*json, "config.json").status();
  ASSERT_FALSE(status.ok()) << text;
  for (const std::string& part : parts) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos)
        << "'" << part << "' is not in: " << status.message();
  }
}

constexpr const char* kUp = "model.layers.1.mlp.up_proj";

TEST(QuantConfigs, Awq) {
  const QuantConfig c = parsed(R"({"quant_method": "AWQ", "bits": 4, "group_size": 64,
    "zero_point": true, "version": "GEMM", "modules_to_not_convert": ["layers.1", "o_proj"]})");
  EXPECT_EQ(c.method, QuantMethod::awq);
  EXPECT_EQ(scheme(c, "model.layers.10.mlp.up_proj").group, 64);
  EXPECT_EQ(layout(c, "model.layers.10.mlp.up_proj"), WeightLayout::awq);
  EXPECT_EQ(layout(c, kUp), WeightLayout::plain);
  EXPECT_EQ(layout(c, "model.layers.2.self_attn.o_proj"), WeightLayout::plain);
  EXPECT_EQ(layout(c, "model.layers.2.self_attn.no_proj"), WeightLayout::awq);
  const QuantConfig old = parsed(R"({"w_bit": 4, "q_group_size": 128, "zero_point": true,
    "version": "gemm"})");
  EXPECT_EQ(old.method, QuantMethod::awq);
  EXPECT_EQ(scheme(old, kUp).group, 128);
  refused(R"({"quant_method": "awq", "bits": 3})", {"3", "4", "AWQ"});
  refused(R"({"quant_method": "awq", "version": "gemv"})", {"gemv", "gemm"});
  refused(R"({"quant_method": "awq", "zero_point": false})", {"zero_point"});
  refused(R"({"quant_method": "awq", "group_size": 0})", {"group_size"});
  refused(R"({"quant_method": "awq", "modules_to_not_convert": "lm_head"})", {"list"});
}

TEST(QuantConfigs, Gptq) {
  const QuantConfig c = parsed(R"({"quant_method": "gptq", "bits": 3, "group_size": 128,
    "desc_act": true, "sym": false, "checkpoint_format": "gptq_v2"})");
  const WeightScheme s = scheme(c, kUp);
  EXPECT_EQ(s.bits, 3);
  EXPECT_TRUE(s.act_order);
  EXPECT_FALSE(s.zeros_minus_one);
  EXPECT_EQ(layout(c, "lm_head"), WeightLayout::plain);
  EXPECT_EQ(layout(parsed(R"({"quant_method": "gptq", "bits": 4, "group_size": -1,
    "lm_head": true})"),
                   "lm_head"),
            WeightLayout::gptq);
  EXPECT_TRUE(scheme(parsed(R"({"quant_method": "gptq", "bits": 4, "group_size": -1})"), kUp)
                  .zeros_minus_one);
  refused(R"({"quant_method": "gptq", "bits": 5, "group_size": 128})", {"5", "2, 3, 4, 8"});
  refused(R"({"quant_method": "gptq", "group_size": 128})", {"bits", "missing"});
  refused(R"({"quant_method": "gptq", "bits": 4})", {"group_size", "missing"});
  refused(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "is_marlin_format": true})",
          {"marlin", "gptq_v2"});
  refused(R"({"quant_method": "gptq", "bits": "four", "group_size": 128})", {"bits", "string"});
}

TEST(QuantConfigs, GptqDynamic) {
  const QuantConfig c = parsed(R"({"quant_method": "gptq", "bits": 4, "group_size": 128,
    "dynamic": {"-:.*\\.layers\\.0\\..*": {}, "+:.*\\.down_proj": {"bits": 8},
                "lm_head": {"group_size": 32}}})");
  EXPECT_EQ(layout(c, "model.layers.0.mlp.down_proj"), WeightLayout::plain);
  EXPECT_EQ(scheme(c, "model.layers.3.mlp.down_proj").bits, 8);
  EXPECT_EQ(scheme(c, "model.layers.3.mlp.down_proj").group, 128);
  EXPECT_EQ(scheme(c, kUp).bits, 4);
  EXPECT_EQ(scheme(c, "lm_head").group, 32);
  refused(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:(": {}}})",
          {"dynamic", "regular expression"});
  refused(
      R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"a": {"bits": 7}}})",
      {"dynamic", "7"});
}

TEST(QuantConfigs, CompressedTensors) {
  const QuantConfig c = parsed(R"({"quant_method": "compressed_tensors", "format": "pack-quantized",
    "config_groups": {
      "group_0": {"targets": ["Linear"], "input_activations": null,
        "weights": {"num_bits": 4, "type": "int", "symmetric": false, "strategy": "group",
                    "group_size": 32, "actorder": "group"}},
      "group_1": {"targets": ["re:.*down_proj$"], "format": "float-quantized",
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
    "ignore": ["lm_head", "re:.*layers\\.1\\."],
    "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}})");
  EXPECT_EQ(c.method, QuantMethod::compressed_tensors);
  EXPECT_EQ(layout(c, "lm_head"), WeightLayout::plain);
  EXPECT_EQ(layout(c, kUp), WeightLayout::plain);
  EXPECT_EQ(layout(c, "model.layers.0.mlp.down_proj"), WeightLayout::fp8);
  const WeightScheme s = scheme(c, "model.layers.0.mlp.up_proj");
  EXPECT_EQ(s.layout, WeightLayout::ct_packed);
  EXPECT_EQ(s.group, 32);
  EXPECT_TRUE(s.act_order);
  EXPECT_FALSE(s.symmetric);
  EXPECT_FALSE(s.int8_inputs);
  const QuantConfig w8a8 = parsed(R"({"quant_method": "compressed-tensors",
    "format": "int-quantized", "config_groups": {"g": {"targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
      "input_activations": {"num_bits": 8, "dynamic": true}}}})");
  EXPECT_TRUE(scheme(w8a8, kUp).int8_inputs);
  // Weights that are named twice go by the name.
  EXPECT_EQ(layout(w8a8, kUp), WeightLayout::int8);
}

TEST(QuantConfigs, CompressedTensorsRefusals) {
  const auto with = [](const char* weights, const char* format) {
    return fmt::format(R"({{"quant_method": "compressed-tensors", "format": "{}",
      "config_groups": {{"g": {{"targets": ["Linear"], "weights": {}}}}}}})",
                       format, weights);
  };
  refused(with(R"({"num_bits": 4, "type": "float"})", "nvfp4-pack-quantized").c_str(), {"nvfp4"});
  refused(with(R"({"num_bits": 6, "type": "int"})", "pack-quantized").c_str(), {"6 bit"});
  refused(with(R"({"num_bits": 4, "type": "int"})", "int-quantized").c_str(), {"4 bit"});
  refused(with(R"({"num_bits": 4, "strategy": "group"})", "pack-quantized").c_str(),
          {"group_size"});
  refused(with(R"({"num_bits": 4, "strategy": "lattice"})", "pack-quantized").c_str(), {"lattice"});
  refused(
      with(R"({"num_bits": 8, "type": "float", "strategy": "block"})", "float-quantized").c_str(),
      {"block_structure"});
  refused(R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {}}}})",
          {"targets"});
  refused(with(R"({"num_bits": 4, "actorder": "random"})", "pack-quantized").c_str(),
          {"actorder", "random"});
  refused(with(R"({"num_bits": 4, "actorder": 1})", "pack-quantized").c_str(),
          {"actorder", "string"});
  for (const char* field : {"sparsity_config", "transform_config"}) {
    const std::string text =
        fmt::format(R"({{"quant_method": "compressed-tensors", "{}": "x"}})", field);
    refused(text.c_str(), {field, "an object", "string"});
  }
  refused(R"({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24"}})",
          {"sparse-24"});
}

TEST(QuantConfigs, Fp8AndBitsandbytes) {
  const QuantConfig c = parsed(R"({"quant_method": "fp8", "activation_scheme": "dynamic",
    "fmt": "e4m3", "weight_block_size": [128, 64], "ignored_layers": ["lm_head"]})");
  EXPECT_EQ(scheme(c, kUp).block_out, 128);
  EXPECT_EQ(scheme(c, kUp).block_in, 64);
  EXPECT_EQ(layout(c, "lm_head"), WeightLayout::plain);
  refused(R"({"quant_method": "fp8", "activation_scheme": "maybe"})", {"maybe", "static"});
  refused(R"({"quant_method": "fp8", "fmt": "e5m2"})", {"e5m2"});
  refused(R"({"quant_method": "fp8", "weight_block_size": [128]})", {"weight_block_size"});
  refused(R"({"quant_method": "fp8", "activation_scheme": "static",
    "weight_block_size": [128, 128]})",
          {"dynamic"});
  const QuantConfig b = parsed(R"({"quant_method": "bitsandbytes", "load_in_4bit": true,
    "load_in_8bit": false, "bnb_4bit_quant_type": "nf4",
    "llm_int8_skip_modules": ["model.layers.1"]})");
  EXPECT_EQ(layout(b, kUp), WeightLayout::plain);
  EXPECT_EQ(layout(b, "model.layers.12.mlp.up_proj"), WeightLayout::bnb4);
  refused(R"({"quant_method": "bitsandbytes"})", {"load_in_4bit", "load_in_8bit"});
  refused(R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "af4"})",
          {"af4"});
}

TEST(QuantConfigs, MethodsByName) {
  refused(R"({"quant_method": "hqq"})", {"hqq", "awq, gptq"});
  refused(R"({"quant_method": "gguf"})", {"gguf"});
  refused(R"({"quant_method": 4})", {"quant_method", "integer"});
  refused(R"({"quant_method": "gptq", "bits": 9223372036854775808, "group_size": 32})",
          {"bits", "9223372036854775808", "to 9223372036854775807, not 9223372036854775808"});
  refused(R"({})", {"quant_method"});
  refused(R"([])", {"object"});
}

TEST(QuantConfigs, PlacesInConfigJson) {
  const auto read = [](const char* text) {
    const auto json = parse_json(text);
    return quant_config_from_hf(*json, "config.json");
  };
  EXPECT_EQ(read(R"({"hidden_size": 4})")->method, QuantMethod::none);
  EXPECT_EQ(read(R"({"quantization_config": null})")->method, QuantMethod::none);
  EXPECT_EQ(read(R"({"quantization_config": {"quant_method": "fp8"}})")->method, QuantMethod::fp8);
  const auto nested = read(R"({"text_config": {"quantization_config": {"quant_method": "fp8"}}})");
  EXPECT_EQ(nested->method, QuantMethod::fp8);
  EXPECT_NE(nested->where.find("text_config"), std::string::npos);
  EXPECT_EQ(read(R"({"compression_config": {"config_groups": {}}})")->method,
            QuantMethod::compressed_tensors);
  EXPECT_FALSE(read(R"({"quantization_config": "awq"})").ok());
}

// Nested repeats must not take for ever.
TEST(QuantConfigs, PatternsAreBounded) {
  const QuantConfig c = parsed(R"({"quant_method": "compressed-tensors", "config_groups": {},
    "ignore": ["re:(a+)+(a+)+(a+)+$"]})");
  const auto start = std::chrono::steady_clock::now();
  const auto found = c.scheme_of(std::string(200, 'a') + "b");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_FALSE(found.ok());
  EXPECT_NE(std::string(found.status().message()).find("(a+)+"), std::string::npos);
}

// Nor may many that are each within the bound, or whose code is long.
TEST(QuantConfigs, ManyPatternsAreBoundedTogether) {
  const auto start = std::chrono::steady_clock::now();
  std::string slow, long_code;
  for (int i = 0; i < 20000; ++i) slow += fmt::format(R"({}"re:.*.*.*x{}")", i ? "," : "", i);
  for (int i = 0; i < 20000; ++i)
    long_code += fmt::format(R"({}"re:((a{{1,99}}){{1,99}}b{{1,99}}){{1,9}}{}")", i ? "," : "", i);
  const QuantConfig c =
      parsed(fmt::format(R"({{"quant_method": "fp8", "ignored_layers": [{}]}})", slow).c_str());
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i)
    status = c.scheme_of(fmt::format("model.layers.{}.self_attn.q_proj", i)).status();
  EXPECT_NE(message_of(status).find("too much work"), std::string::npos);
  refused(fmt::format(R"({{"quant_method": "fp8", "ignored_layers": [{}]}})", long_code).c_str(),
          {"ignored_layers", "too much work"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  // An honest list of names and patterns for a large model is far from the bound.
  std::string honest;
  for (int i = 0; i < 500; ++i)
    honest +=
        fmt::format(R"({}"model.layers.{}.mlp.down_proj","re:.*layers\\.{}\\.mlp\\.up_proj$")",
                    i ? "," : "", i, i);
  const QuantConfig h =
      parsed(fmt::format(R"({{"quant_method": "fp8", "ignored_layers": [{}]}})", honest).c_str());
  for (int i = 0; i < 1000; ++i) {
    const auto scheme = h.scheme_of(fmt::format("model.layers.{}.mlp.up_proj", i));
    ASSERT_TRUE(scheme.ok()) << i << scheme.status();
    ASSERT_EQ(scheme->layout, i < 500 ? WeightLayout::plain : WeightLayout::fp8) << i;
  }
}

TEST(QuantChoice, FollowsOrContradictsTheCheckpoint) {
  const QuantConfig gptq = parsed(R"({"quant_method": "gptq", "bits": 4, "group_size": 128})");
  for (const char* word : {"auto", "", "gptq", "GPTQ", "gptq_marlin", "marlin", "auto_gptq"}) {
    const auto c = choose_quantization(word, gptq);
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_EQ(c->method, QuantMethod::gptq);
    EXPECT_FALSE(c->quantises_at_load());
  }
  for (const char* word : {"awq", "fp8", "bitsandbytes", "gguf", "none", "compressed-tensors"}) {
    const auto c = choose_quantization(word, gptq);
    ASSERT_FALSE(c.ok()) << word;
    const std::string message(c.status().message());
    EXPECT_NE(message.find(word), std::string::npos) << message;
    EXPECT_NE(message.find("gptq"), std::string::npos) << message;
  }
  const auto unknown = choose_quantization("int3", gptq);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(std::string(unknown.status().message()).find("compressed-tensors"), std::string::npos);
}

TEST(QuantChoice, QuantisesWhileLoading) {
  for (const auto& [word, expected] :
       {std::pair{"fp8", WeightLayout::to_fp8}, std::pair{"bitsandbytes", WeightLayout::to_nf4}}) {
    const auto c = choose_quantization(word, QuantConfig());
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_TRUE(c->quantises_at_load());
    EXPECT_EQ(layout(*c, kUp), expected);
  }
  EXPECT_EQ(choose_quantization("none", QuantConfig())->method, QuantMethod::none);
  for (const char* word : {"awq", "gptq", "compressed-tensors", "gguf"}) {
    const auto c = choose_quantization(word, QuantConfig());
    ASSERT_FALSE(c.ok()) << word;
    EXPECT_NE(std::string(c.status().message()).find("not quantised"), std::string::npos);
  }
  QuantConfig gguf;
  gguf.method = QuantMethod::gguf;
  EXPECT_TRUE(choose_quantization("gguf", gguf).ok());
  EXPECT_FALSE(choose_quantization("fp8", gguf).ok());
}

}  // namespace
}  // namespace pagefold::testing
