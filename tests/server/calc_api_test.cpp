#include "server/calc_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  const auto error = calc_answer(*parse_json(body), served(), text);
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
