// What the calculator refuses, and that it names it.
#include <gmock/gmock.h>

#include <functional>

#include "api/calc_cases.h"

namespace pagefold::testing {
namespace {

using ::testing::HasSubstr;

void expect_refused(const CalcRequest& q, const std::string& part) {
  const auto r = calculate(q);
  ASSERT_FALSE(r.ok()) << part;
  EXPECT_THAT(std::string(r.status().message()), HasSubstr(part));
}

CalcRequest usual() { return by_hand(4, 2, 64, 100); }

TEST(CalcRefusals, NumbersOutOfRange) {
  const std::vector<std::pair<std::string, std::function<void(CalcRequest&)>>> cases = {
      {"tokens: must be", [](CalcRequest& q) { q.tokens = 0; }},
      {"tokens: must be", [](CalcRequest& q) { q.tokens = -5; }},
      {"tokens: must be", [](CalcRequest& q) { q.tokens = INT64_MAX; }},
      {"prompt_tokens: must be", [](CalcRequest& q) { q.prompt_tokens = -1; }},
      {"prompt_tokens: 101 are more than the 100 tokens of a sequence",
       [](CalcRequest& q) { q.prompt_tokens = 101; }},
      {"shared_prefix: 30 are more than the 20 tokens of the longest",
       [](CalcRequest& q) {
         q.tokens.reset();
         q.lengths = {10, 20};
         q.shared_prefix = 30;
       }},
      {"that differ are too many for 4096 layers",
       [](CalcRequest& q) {
         q.tokens.reset();
         q.shape.layers = 4096;
         for (int64_t n = 1; n <= 1025; ++n) q.lengths.push_back(n);
       }},
      {"--layers: must be an integer from 1 to 4096, got 4097",
       [](CalcRequest& q) { q.shape.layers = 4097; }},
      {"sequences: must be", [](CalcRequest& q) { q.sequences = 0; }},
      {"sequences: must be", [](CalcRequest& q) { q.sequences = (1 << 20) + 1; }},
      {"lengths: must be",
       [](CalcRequest& q) {
         q.tokens.reset();
         q.lengths = {5, 0};
       }},
      {"lengths: instead of", [](CalcRequest& q) { q.lengths = {5}; }},
      {"tensor_parallel_size: must be", [](CalcRequest& q) { q.tensor_parallel_size = 0; }},
      {"--block-size: must be", [](CalcRequest& q) { q.block_size = 24; }},
      {"block_size: must be", [](CalcRequest& q) { q.block_size = 0; }},
      {"memory_bytes: must be", [](CalcRequest& q) { q.memory_bytes = 0; }},
      {"KV heads is 0", [](CalcRequest& q) { q.shape.kv_heads = 0; }},
      {"KV heads is -3", [](CalcRequest& q) { q.shape.kv_heads = -3; }},
      {"head_dim is 0", [](CalcRequest& q) { q.shape.head_dim = 0; }},
      {"--layers: must be", [](CalcRequest& q) { q.shape.layers = 0; }},
      {"window is 0", [](CalcRequest& q) { q.shape.window = 0; }},
      {"--window-layers: must be",
       [](CalcRequest& q) {
         q.shape.window = 8;
         q.shape.window_layers = 5;
       }},
      {"needs --layers", [](CalcRequest& q) { q.shape.layers.reset(); }},
      {"beyond 2^63",
       [](CalcRequest& q) {
         q.shape.layers = 1 << 10;
         q.shape.head_dim = (1 << 20) - 1;
         q.shape.kv_heads = (1 << 20) - 1;
         q.tokens = 1 << 30;
       }},
  };
  for (const auto& [part, change] : cases) {
    CalcRequest q = usual();
    change(q);
    expect_refused(q, part);
  }
}

TEST(CalcRefusals, UnknownWords) {
  const std::vector<std::pair<std::string, std::function<void(CalcRequest&)>>> cases = {
      {"unknown engine 'sglang'", [](CalcRequest& q) { q.engine = "sglang"; }},
      {"unknown KV cache dtype 'fp3'", [](CalcRequest& q) { q.kv_cache_dtype = "fp3"; }},
      {"unknown KV cache type 'q9_0'",
       [](CalcRequest& q) {
         q.engine = "llama.cpp";
         q.kv_cache_dtype_v = "q9_0";
       }},
      {"vLLM has no int4",
       [](CalcRequest& q) {
         q.engine = "vllm";
         q.kv_cache_dtype = "int4";
       }},
      {"only int8 and int4 caches", [](CalcRequest& q) { q.kv_cache_group = 32; }},
      {"only int8 and int4 caches",
       [](CalcRequest& q) {
         q.engine = "llama.cpp";
         q.kv_cache_group = 32;
       }},
      {"must be auto, 0 or 32", [](CalcRequest& q) { q.kv_cache_group = 33; }},
      {"unknown weight format 'q7'", [](CalcRequest& q) { q.weight_format = "q7"; }},
      {"unknown dtype 'fp64'", [](CalcRequest& q) { q.dtype = "fp64"; }},
      {"mla: 'wide' is none of", [](CalcRequest& q) { q.mla = "wide"; }},
      {"unknown policy \"h3o\"",
       [](CalcRequest& q) {
         q.kv = {{"policy", "h3o"}};
       }},
      {"unknown key \"bugdet\"",
       [](CalcRequest& q) {
         q.kv = {{"policy", "h2o"}, {"bugdet", "1"}};
       }},
      {"vllm does not compress",
       [](CalcRequest& q) {
         q.engine = "vllm";
         q.kv = {{"policy", "h2o"}};
       }},
      {"no whole blocks of 32",
       [](CalcRequest& q) {
         q.shape.head_dim = 80;
         q.engine = "llama.cpp";
         q.kv_cache_dtype = "q8_0";
       }},
      {"exactly one of", [](CalcRequest& q) { q.model = "qwen3-8b"; }},
  };
  for (const auto& [part, change] : cases) {
    CalcRequest q = usual();
    change(q);
    expect_refused(q, part);
  }
}

TEST(CalcRefusals, ConfigsThatMakeNoSense) {
  const Json good = {{"model_type", "llama"},
                     {"num_hidden_layers", 2},
                     {"hidden_size", 64},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}};
  ASSERT_TRUE(calculate(of_config(good, 10)).ok());
  const std::vector<std::pair<std::string, Json>> cases = {
      {"unknown architecture 'lama'", {{"model_type", "lama"}}},
      {"'num_hidden_layers' must be an integer from 1 to 4096, not 0", {{"num_hidden_layers", 0}}},
      {"'num_hidden_layers' is missing", {{"num_hidden_layers", nullptr}}},
      {"'num_hidden_layers' must be an integer from 1 to 4096, not 1000000000",
       {{"num_hidden_layers", 1000000000}}},
      {"'num_hidden_layers' must be an integer from 1 to 4096, not 1000000000.0",
       {{"num_hidden_layers", 1e9}}},
      {"'n_layer' must be an integer from 1 to 4096, not 18446744073709551615",
       {{"num_hidden_layers", nullptr}, {"n_layer", UINT64_MAX}}},
      {"'num_key_value_heads' must be an integer from 1 to 1099511627776, not -1",
       {{"num_key_value_heads", -1}}},
      {"to 1099511627776, not 2.5", {{"num_key_value_heads", 2.5}}},
      {"to 1099511627776, not string", {{"num_key_value_heads", "2"}}},
      {"no multiple of 4 heads", {{"hidden_size", 66}}},
      {"'head_dim' must be an integer from 1 to", {{"head_dim", UINT64_MAX}}},
      {"'num_attention_heads' is missing", {{"num_attention_heads", nullptr}}},
      {"'kv_lora_rank' is missing", {{"model_type", "deepseek_v3"}}},
      {"2 letters", {{"model_type", "nemotron_h"}, {"hybrid_override_pattern", "MXM"}}},
      {"'layer_types' has 1 entries",
       {{"model_type", "gemma3"}, {"layer_types", {"full_attention"}}}},
      {"unknown layer type 'odd'",
       {{"model_type", "gemma3"}, {"layer_types", {"full_attention", "odd"}}}},
      {"num_kv_shared_layers is 2 of 2 layers",
       {{"model_type", "gemma3n"}, {"num_kv_shared_layers", 2}}},
  };
  for (const auto& [part, more] : cases) {
    Json config = good;
    config.update(more);
    expect_refused(of_config(config, 10), part);
  }
  CalcRequest q;
  q.config_json = "{\"model_type\": \"llama\", \"num_hidden_layers\": NaN}";
  EXPECT_FALSE(calculate(q).ok());
  q.config_json = "[]";
  EXPECT_FALSE(calculate(q).ok());
  q.config_json.clear();
  q.model = "no-such-model-7b";
  expect_refused(q, "nor a preset");
}

TEST(CalcRefusals, NumbersOfJsonNameTheirRange) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"tokens": 18446744073709551615})", "tokens: must be an integer from 1 to 1073741824"},
      {R"({"tokens": 1e30})", "tokens: must be an integer from 1 to 1073741824"},
      {R"({"tokens": "4k"})", "tokens: must be an integer from 1 to 1073741824, not string"},
      {R"({"sequences": 0})", "sequences: must be an integer from 1 to 1048576"},
      {R"({"lengths": [1, 9223372036854775808]})",
       "lengths: each must be an integer from 1 to 1073741824"},
      {R"({"memory_bytes": 9223372036854775808})",
       "memory_bytes: must be an integer from 1 to 9223372036854775807"},
      {R"({"shape": {"layers": 1000000000}})", "shape.layers: must be an integer from 1 to 4096"},
      {R"({"shape": {"head_dim": -1}})", "shape.head_dim: must be an integer from 0 to 1048576"},
  };
  for (const auto& [text, want] : cases) {
    const auto request = calc_request_from_json(text);
    ASSERT_FALSE(request.ok()) << text;
    EXPECT_EQ(request.status().message(), want) << text;
  }
}

TEST(CalcRefusals, RequestsAsJson) {
  const auto q = calc_request_from_json(
      R"({"model": "qwen3-8b", "tokens": 32768, "sequences": 4, "kv_cache_dtype": "fp8",
          "kv": {"policy": "streaming", "budget": 1024, "protect_prompt": false}})");
  ASSERT_TRUE(q.ok()) << q.status();
  const CalcResult r = calculated(*q);
  EXPECT_EQ(r.kv.ideal_bytes, 36ull * 8 * 2 * 128 * 32768 * 4);
  EXPECT_EQ(r.kv.steady_bytes, 36ull * 8 * 2 * 128 * 1024 * 4);
  const Json json = *parse_json(calc_result_to_json(r));
  for (const char* key :
       {"bytes_per_token", "ideal_bytes", "allocated_bytes", "steady_bytes", "peak_bytes"}) {
    EXPECT_TRUE(json["kv"][key].is_number_integer()) << key;
  }
  EXPECT_EQ(json["weights_bytes"], 2 * 8190735360ull);
  EXPECT_TRUE(json["fits"].is_null());
  EXPECT_THAT(json["formula"].get<std::string>(),
              HasSubstr("36 layers x 8 KV heads x (128 x 1 + 128 x 1) = 73728 bytes a token"));
  for (const char* bad :
       {R"({"model": "qwen3-8b", "tokns": 1})", R"({"tokens": 1.5})", R"({"tokens": "many"})",
        R"({"lengths": []})", R"({"lengths": [1, "a"]})", R"({"memory_bytes": -1})", R"({"kv": 3})",
        R"({"shape": {"layer": 1}})", R"({"config": "x"})", R"([1])", R"({"tokens": NaN})",
        R"({"tokens": 99999999999999999999})"}) {
    EXPECT_FALSE(calc_request_from_json(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace pagefold::testing
