#include "engine/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kv/option_keys.h"

namespace pagefold {
namespace {

using ::testing::StartsWith;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNotANumber = std::nanf("");

EngineConfig config() {
  EngineConfig c;
  c.max_model_len = 100;
  return c;
}

Request valid() {
  Request r;
  r.tokens = std::vector<int32_t>(10, 1);
  return r;
}

struct Case {
  std::string message;  // the start of the expected message; empty: valid
  std::function<void(Request&)> change;
};

void expect_all(const std::vector<Case>& cases) {
  for (size_t i = 0; i < cases.size(); ++i) {
    Request r = valid();
    cases[i].change(r);
    const Status s = check_request(r, config(), 50);
    if (cases[i].message.empty()) {
      EXPECT_TRUE(s.ok()) << i << ": " << s;
    } else {
      EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << i;
      EXPECT_THAT(message_of(s), StartsWith(cases[i].message)) << i;
    }
  }
}

// D05, D16, D18: lengths, with both numbers.
TEST(Limits, PromptAndLengths) {
  const auto prompt = [](size_t n) {
    return [n](Request& r) { r.tokens = std::vector<int32_t>(n, 1); };
  };
  const auto max_tokens = [](int64_t n) { return [n](Request& r) { r.sampling.max_tokens = n; }; };
  const auto min_tokens = [](int64_t n) { return [n](Request& r) { r.sampling.min_tokens = n; }; };
  expect_all({
      {"", prompt(1)},
      {"", prompt(99)},
      {"prompt: it is empty", prompt(0)},
      {"prompt: it has 100 tokens, but the context is 100 tokens", prompt(100)},
      {"prompt: it has 5000 tokens, but the context is 100 tokens", prompt(5000)},
      {"", max_tokens(1)},
      {"", max_tokens(90)},
      {"max_tokens: the prompt has 10 tokens and max_tokens is 91, but the context is 100",
       max_tokens(91)},
      {"max_tokens: the prompt has 10 tokens and max_tokens is 1000000000", max_tokens(1000000000)},
      {"max_tokens: the prompt has 10 tokens and max_tokens is 9223372036854775807",
       max_tokens(std::numeric_limits<int64_t>::max())},
      {"max_tokens: must be at least 1, got 0", max_tokens(0)},
      {"max_tokens: must be at least 1, got -", max_tokens(std::numeric_limits<int64_t>::min())},
      {"", min_tokens(90)},
      {"min_tokens: must be between 0 and max_tokens (90), got 91", min_tokens(91)},
      {"min_tokens: must be between 0 and max_tokens (90), got -1", min_tokens(-1)},
      {"prompt: token 50 at index 3 is outside the vocabulary of 50 tokens",
       [](Request& r) { r.tokens[3] = 50; }},
      {"prompt: token -1 at index 0", [](Request& r) { r.tokens[0] = -1; }},
  });
}

// D17, D20: numbers.
TEST(Limits, SamplingNumbers) {
  const auto set = [](float SamplingOptions::*field, float value) {
    return [field, value](Request& r) { r.sampling.*field = value; };
  };
  using O = SamplingOptions;
  std::vector<Case> cases = {
      {"", set(&O::temperature, 0)},
      {"", set(&O::temperature, 5)},
      {"temperature: ", set(&O::temperature, -1)},
      {"temperature: ", set(&O::temperature, kNotANumber)},
      {"temperature: ", set(&O::temperature, kInfinity)},
      {"", set(&O::top_p, 1e-9f)},
      {"top_p: ", set(&O::top_p, 0)},
      {"top_p: ", set(&O::top_p, 1.01f)},
      {"top_p: ", set(&O::top_p, kNotANumber)},
      {"", set(&O::min_p, 0)},
      {"", set(&O::min_p, 1)},
      {"min_p: ", set(&O::min_p, -0.1f)},
      {"min_p: ", set(&O::min_p, kNotANumber)},
      {"", set(&O::repetition_penalty, 0.5f)},
      {"repetition_penalty: ", set(&O::repetition_penalty, 0)},
      {"repetition_penalty: ", set(&O::repetition_penalty, kInfinity)},
      {"repetition_penalty: ", set(&O::repetition_penalty, kNotANumber)},
      {"", set(&O::presence_penalty, -2)},
      {"presence_penalty: ", set(&O::presence_penalty, 2.1f)},
      {"presence_penalty: ", set(&O::presence_penalty, kNotANumber)},
      {"", set(&O::frequency_penalty, 2)},
      {"frequency_penalty: ", set(&O::frequency_penalty, -2.1f)},
      {"frequency_penalty: ", set(&O::frequency_penalty, kNotANumber)},
  };
  for (const int32_t k : {-1, 0, 1, 1000000}) {
    cases.push_back({"", [k](Request& r) { r.sampling.top_k = k; }});
  }
  cases.push_back({"top_k: ", [](Request& r) { r.sampling.top_k = -2; }});
  for (const int32_t n : {-1, 0, 20, 21}) {
    const bool ok = n == 0 || n == 20;
    cases.push_back({ok ? "" : "logprobs: ", [n](Request& r) { r.sampling.logprobs = n; }});
    cases.push_back(
        {ok ? "" : "prompt_logprobs: ", [n](Request& r) { r.sampling.prompt_logprobs = n; }});
  }
  expect_all(cases);
}

TEST(Limits, TokenIdsAndStrings) {
  const auto bias = [](int32_t id, float value) {
    return [id, value](Request& r) { r.sampling.logit_bias = {{0, 0.0f}, {id, value}}; };
  };
  expect_all({
      {"", bias(49, kInfinity)},
      {"logit_bias: token 50 is outside the vocabulary of 50 tokens", bias(50, 1)},
      {"logit_bias: token -1 is", bias(-1, 1)},
      {"logit_bias: token 2147483647 is", bias(2147483647, 1)},
      {"logit_bias: the bias of token 3 is not a number", bias(3, kNotANumber)},
      {"",
       [](Request& r) {
         r.sampling.stop_token_ids = {0, 49};
       }},
      {"stop_token_ids: token 50 is",
       [](Request& r) {
         r.sampling.stop_token_ids = {0, 50};
       }},
      {"allowed_token_ids: token 50 is",
       [](Request& r) {
         r.sampling.allowed_token_ids = {0, 50};
       }},
      {"bad_words: token -1 is",
       [](Request& r) {
         r.sampling.bad_words = {{1}, {2, -1}};
       }},
      {"bad_words: a word has no token", [](Request& r) { r.sampling.bad_words = {{}}; }},
      {"stop_token_ids: token -1 is", [](Request& r) { r.sampling.stop_token_ids = {-1}; }},
      {"", [](Request& r) { r.sampling.stop = std::vector<std::string>(16, "x"); }},
      {"stop: at most 16 strings, got 17",
       [](Request& r) { r.sampling.stop = std::vector<std::string>(17, "x"); }},
      {"stop: a stop string is empty",
       [](Request& r) {
         r.sampling.stop = {"x", ""};
       }},
  });
}

TEST(Limits, MaxTokensIsTheRoomLeftWhenAbsent) {
  Request r = valid();
  EXPECT_EQ(resolved_max_tokens(r, config()), 90);
  r.sampling.max_tokens = 7;
  EXPECT_EQ(resolved_max_tokens(r, config()), 7);
}

TEST(Limits, KeysOfARequestAreTakenOutOfItsKv) {
  KvOptions kv = {{"policy", "h2o"}};
  for (const KvKey& key : kv_keys()) {
    if (key.of_request) kv[std::string(key.name)] = "off";
  }
  EXPECT_GT(kv.size(), 2u);
  const auto words = take_session_words(kv);
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_EQ(words->name, "off");
  EXPECT_FALSE(words->drop_thinking);
  EXPECT_EQ(kv.size(), 1u);
}

}  // namespace
}  // namespace pagefold
