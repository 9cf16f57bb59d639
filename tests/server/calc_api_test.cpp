#include "server/calc_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace pagefold {
namespace {

using ::testing::HasSubstr;

ApiModel served() {
  ApiModel m;
  m.names = {"tiny"};
  return m;
}

std::optional<ApiError> ask(const char* body, Json& out) {
  std::string text;
  const auto error = calc_answer(*parse_json(body), served(), {}, text);
  if (!error) out = *parse_json(text);
  return error;
}

TEST(CalcApi, AnswersAsTheCommandLineDoes) {
  Json out;
  ASSERT_FALSE(ask(R"({"model": "Qwen3-8B", "tokens": 1000, "kv_cache_dtype": "fp8",
                       "kv_cache_memory_bytes": 1073741824})",
                   out));
  EXPECT_EQ(out["kv"]["ideal_bytes"], 36 * 8 * 2 * 128 * 1000);
  EXPECT_EQ(out["kv"]["allocated_bytes"], 36 * 8 * 2 * 128 * 1008);
  EXPECT_EQ(out["fits"]["max_tokens"], 1073741824 / (36 * 8 * 2 * 128 * 16) * 16);
  ASSERT_FALSE(ask(R"({"config": {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
                       "num_attention_heads": 4}, "tokens": 16})",
                   out));
  EXPECT_EQ(out["kv"]["allocated_bytes"], 2 * 4 * 2 * 16 * 2 * 16);
  EXPECT_EQ(parse_json(calc_choices(served()))->at("presets").size(), 35u);
}

// What a request for the served model leaves out is the server's: the same as if it had said it.
TEST(CalcApi, TheServedModelIsAsTheServerRunsIt) {
  ApiModel model = served();
  model.path = ::testing::TempDir() + "calc_api_" + std::to_string(::getpid()) + ".json";
  std::ofstream(model.path)
      << R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 512,
      "num_attention_heads": 8, "max_position_embeddings": 65536})";
  EngineConfig server;
  server.kv_format = KvFormat(DType::int8, DType::int4, 32);
  server.block_size = 64;
  server.max_model_len = 5000;
  server.max_num_batched_tokens = 100;
  server.kv = {{"policy", "triattention:recent=32,calibration=mine"}, {"budget", "256"}};
  const auto answer = [&](const char* body, const EngineConfig& config) {
    std::string text;
    const auto error = calc_answer(*parse_json(body), model, config, text);
    EXPECT_FALSE(error) << body << ": " << error->message;
    return text;
  };
  const std::pair<const char*, const char*> same[] = {
      {R"({})",
       R"({"tokens": 5000, "block_size": 64, "kv_cache_dtype": "int8", "kv_cache_dtype_v": "int4",
           "kv_cache_group": 32, "max_num_batched_tokens": 100,
           "kv": {"policy": "triattention:recent=32", "budget": 256}})"},
      {R"({"model": "tiny", "kv": {}, "lengths": [10, 20], "kv_cache_dtype": "float16"})",
       R"({"lengths": [10, 20], "block_size": 64, "kv_cache_dtype": "float16",
           "max_num_batched_tokens": 100})"},
      {R"({"kv_cache_dtype_v": "int8", "kv": {"policy": "full"}, "tokens": null})",
       R"({"tokens": 5000, "block_size": 64, "kv_cache_dtype": "int8", "kv_cache_dtype_v": "int8",
           "max_num_batched_tokens": 100})"},
  };
  for (const auto& [left_out, said] : same) {
    const Json got = *parse_json(answer(left_out, server));
    const Json want = *parse_json(answer(said, {}));
    EXPECT_EQ(got["kv"], want["kv"]) << left_out;
    EXPECT_EQ(got["formula"], want["formula"]) << left_out;
    EXPECT_EQ(got["policy"], want["policy"]) << left_out;
    EXPECT_EQ(got["activations_bytes"], want["activations_bytes"]) << left_out;
  }
  // Other engines and other models have the calculator's defaults.
  EXPECT_EQ(answer(R"({"engine": "vllm"})", server), answer(R"({"engine": "vllm"})", {}));
  EXPECT_EQ(answer(R"({"model": "qwen3-8b"})", server), answer(R"({"model": "qwen3-8b"})", {}));
  std::filesystem::remove(model.path);
}

// Requests never name paths, and errors are the client's.
TEST(CalcApi, RefusesPathsAndWrongFields) {
  Json out;
  for (const char* body : {R"({"model": "/etc/passwd"})", R"({"model": "../model.gguf"})",
                           R"({"model": "."})", R"({"model": "tiny"})", R"({})"}) {
    const auto error = ask(body, out);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(error->param, "model");
    EXPECT_THAT(error->message, ::testing::Not(HasSubstr("passwd")));
  }
  for (const char* body :
       {R"({"model": "qwen3-8b", "tokens": 0})", R"({"model": "qwen3-8b", "tokns": 10})",
        R"({"model": "qwen3-8b", "kv_cache_dtype": "fp3"})",
        R"({"config": {"model_type": "nothing"}})", R"({"config": {"model_type": "llama"}})"}) {
    const auto error = ask(body, out);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->status, 400) << error->message;
  }
}

}  // namespace
}  // namespace pagefold
