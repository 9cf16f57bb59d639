// The whole handler on a scripted engine: no socket, no thread.
#include <gtest/gtest.h>

#include "fakes.h"
#include "server/openai_api.h"

namespace pagefold {
namespace {

using test::ByteTokenizer;
using test::RecordingResponder;
using test::ScriptedEngine;

class OpenAiAnswer : public ::testing::Test {
 protected:
  OpenAiAnswer() {
    chat_ = std::make_unique<ChatTemplate>(*ChatTemplate::parse(test::kChatMl));
    make_api({});
  }
  void make_api(ApiOptions options) {
    api_ = std::make_unique<OpenAiApi>(test::byte_model(tokenizer_, chat_.get()), engine_, options);
  }
  std::shared_ptr<RecordingResponder> request(std::string method, std::string target,
                                              std::string body = {}, HttpHeaders headers = {}) {
    auto r = std::make_shared<RecordingResponder>();
    api_->handle({std::move(method), std::move(target), std::move(headers), std::move(body)}, r);
    r->run();
    return r;
  }
  std::shared_ptr<RecordingResponder> complete(std::string body) {
    return request("POST", "/v1/completions", std::move(body));
  }
  std::shared_ptr<RecordingResponder> chat(std::string rest) {
    return request("POST", "/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"hi"}])" + rest + "}");
  }
  ByteTokenizer tokenizer_;
  std::unique_ptr<ChatTemplate> chat_;
  ScriptedEngine engine_;
  std::unique_ptr<OpenAiApi> api_;
};

TEST_F(OpenAiAnswer, PlainCompletion) {
  auto r = complete(R"({"prompt":"abc","max_tokens":5,"echo":true})");
  engine_.say(0, "de");
  r->run();
  EXPECT_FALSE(r->ended);
  engine_.token(0, ByteTokenizer::kEnd);
  engine_.finish(0, FinishReason::stop);
  r->run();
  ASSERT_EQ(r->status, 200);
  const Json j = r->json();
  EXPECT_EQ(j["object"], "text_completion");
  EXPECT_EQ(j["model"], "tiny");
  EXPECT_TRUE(j["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(j["choices"][0]["text"], "abcde");
  EXPECT_EQ(j["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(j["choices"][0]["stop_reason"].is_null());
  EXPECT_EQ(j["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(j["usage"]["completion_tokens"], 3);  // the end token counts
  EXPECT_EQ(j["usage"]["total_tokens"], 6);
  EXPECT_EQ(j["usage"]["kv"]["kept_slots"], 40);
  EXPECT_EQ(j["usage"]["kv"]["kept_tokens"], 10);
  EXPECT_EQ(j["usage"]["kv"]["policy"], "full");
}

TEST_F(OpenAiAnswer, PlainChatWithLogprobs) {
  auto r = chat(R"(,"logprobs":true,"top_logprobs":2,"return_token_ids":true)");
  engine_.say(0, "\xc3\xa9", true);  // é in two tokens
  engine_.finish(0, FinishReason::length);
  r->run();
  const Json j = r->json();
  EXPECT_EQ(j["object"], "chat.completion");
  EXPECT_EQ(j["choices"][0]["message"]["content"], "é");
  EXPECT_EQ(j["choices"][0]["finish_reason"], "length");
  const Json& content = j["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0]["bytes"], Json::array({0xc3}));
  EXPECT_EQ(content[0]["logprob"], -0.5);
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "z");
  EXPECT_EQ(j["choices"][0]["token_ids"], Json::array({0xc3, 0xa9}));
  EXPECT_EQ(j["prompt_token_ids"].size(), engine_.jobs[0].request.tokens.size());
}

TEST_F(OpenAiAnswer, CompletionLogprobs) {
  auto r = complete(R"({"prompt":"x","logprobs":2})");
  engine_.say(0, "ab", true);
  engine_.finish(0, FinishReason::length);
  r->run();
  const Json lp = r->json()["choices"][0]["logprobs"];
  EXPECT_EQ(lp["tokens"], Json::array({"a", "b"}));
  EXPECT_EQ(lp["text_offset"], Json::array({0, 1}));
  EXPECT_EQ(lp["token_logprobs"], Json::array({-0.5, -0.5}));
  EXPECT_EQ(lp["top_logprobs"][0], (Json{{"a", -0.5}, {"z", -1.25}}));
}

TEST_F(OpenAiAnswer, StreamedChat) {
  auto r = chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  EXPECT_TRUE(r->streaming);
  EXPECT_EQ(r->body, "");  // nothing before the first token
  EXPECT_TRUE(r->header("Content-Type").starts_with("text/event-stream"));
  engine_.say(0, "H");
  r->run();
  engine_.say(0, "i");
  r->run();
  engine_.finish(0, FinishReason::length);
  r->run();
  EXPECT_TRUE(r->ended);
  EXPECT_TRUE(r->body.ends_with("data: [DONE]\n\n"));
  const auto events = r->events();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0]["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "H");
  EXPECT_TRUE(events[1]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(events[2]["choices"][0]["delta"]["content"], "i");
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(events[4]["choices"].empty());
  EXPECT_EQ(events[4]["usage"]["completion_tokens"], 2);
  for (const Json& e : events) {
    EXPECT_EQ(e["object"], "chat.completion.chunk");
    EXPECT_EQ(e["id"], events[0]["id"]);
  }
}

// D25: whatever the cut into tokens, the stop string and half characters never leak.
TEST_F(OpenAiAnswer, StopStringsEndTextAndGeneration) {
  const std::string before = "A \xf0\x9f\x98\x80 near\n\nUse ";
  for (const bool stream : {false, true}) {
    const size_t job = engine_.jobs.size();
    auto r = complete(std::string(R"({"prompt":"x","max_tokens":100,"stop":["\n\nUser:"])") +
                      (stream ? R"(,"stream":true})" : "}"));
    for (const char c : before + "\n\nUser: more") {
      engine_.say(job, std::string(1, c));
      r->run();
    }
    EXPECT_TRUE(engine_.cancelled(job));
    engine_.finish(job, FinishReason::cancelled);
    r->run();
    std::string text;
    Json last;
    if (stream) {
      for (const Json& e : r->events()) {
        text += e["choices"][0]["text"].get<std::string>();
        last = e["choices"][0];
      }
    } else {
      last = r->json()["choices"][0];
      text = last["text"].get<std::string>();
      EXPECT_EQ(r->json()["usage"]["completion_tokens"], before.size() + 7);
    }
    EXPECT_EQ(text, before);
    EXPECT_EQ(last["finish_reason"], "stop");
    EXPECT_EQ(last["stop_reason"], "\n\nUser:");
  }
}

TEST_F(OpenAiAnswer, StopTokensAreLeftOut) {
  auto r = complete(R"({"prompt":"x","stop_token_ids":[33],"skip_special_tokens":false})");
  engine_.say(0, "ab!");
  engine_.finish(0, FinishReason::stop);
  r->run();
  EXPECT_EQ(r->json()["choices"][0]["text"], "ab");
  EXPECT_EQ(r->json()["choices"][0]["stop_reason"], 33);
}

TEST_F(OpenAiAnswer, ChoicesOfSeveralPrompts) {
  auto r = complete(R"({"prompt":["a","bc"],"n":2,"seed":7})");
  ASSERT_EQ(engine_.jobs.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(engine_.jobs[i].request.sampling.seed, 7 + i % 2);
    engine_.say(i, std::to_string(i));
  }
  for (const size_t i : {3, 1, 0, 2}) {
    r->run();
    EXPECT_FALSE(r->ended);
    engine_.finish(i, FinishReason::length);
  }
  r->run();
  const Json j = r->json();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(j["choices"][i]["index"], i);
    EXPECT_EQ(j["choices"][i]["text"], std::to_string(i));
  }
  EXPECT_EQ(j["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(j["usage"]["completion_tokens"], 4);
}

TEST_F(OpenAiAnswer, AFullQueueRefusesTheWholeRequest) {
  engine_.capacity = 2;
  auto r = complete(R"({"prompt":"a","n":3})");
  EXPECT_EQ(r->status, 429);
  EXPECT_EQ(r->header("Retry-After"), "1");
  EXPECT_EQ(r->json()["error"]["type"], "RateLimitError");
  EXPECT_TRUE(engine_.cancelled(0));
  EXPECT_TRUE(engine_.cancelled(1));
}

TEST_F(OpenAiAnswer, ALeavingClientCancelsAll) {
  for (const char* stream : {"true", "false"}) {
    const size_t first = engine_.jobs.size();
    auto r = complete(std::string(R"({"prompt":"a","n":2,"stream":)") + stream + "}");
    engine_.say(first, "x");
    r->run();
    r->leave();
    EXPECT_TRUE(engine_.cancelled(first));
    EXPECT_TRUE(engine_.cancelled(first + 1));
    engine_.finish(first, FinishReason::cancelled);
    r->run();
    EXPECT_FALSE(r->ended);
  }
}

TEST_F(OpenAiAnswer, ASlowReaderHoldsBackItsStreamOnly) {
  auto r = complete(R"({"prompt":"a","max_tokens":500,"stream":true})");
  r->limit = 1000;
  engine_.say(0, std::string(400, 'y'));
  engine_.finish(0, FinishReason::length);
  r->run();
  EXPECT_LT(r->queued, 1500u);
  EXPECT_FALSE(r->ended);
  for (int i = 0; i < 400 && !r->ended; ++i) r->drain();
  EXPECT_TRUE(r->ended);
  std::string text;
  for (const Json& e : r->events()) text += e["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, std::string(400, 'y'));
}

TEST_F(OpenAiAnswer, EngineErrors) {
  auto plain = complete(R"({"prompt":"a"})");
  engine_.finish(0, FinishReason::error, "broken");
  plain->run();
  EXPECT_EQ(plain->status, 500);
  auto stream = complete(R"({"prompt":"a","stream":true})");
  engine_.say(1, "x");
  engine_.finish(1, FinishReason::error, "broken");
  stream->run();
  EXPECT_EQ(stream->events().back()["error"]["code"], 500);
  EXPECT_TRUE(stream->body.ends_with("data: [DONE]\n\n"));
}

TEST_F(OpenAiAnswer, AServerThatStopsSaysThatTheAnswerIsCut) {
  auto plain = complete(R"({"prompt":"a"})");
  auto stream = complete(R"({"prompt":"a","stream":true})");
  engine_.say(1, "x");
  stream->run();
  plain->stop();
  stream->stop();
  EXPECT_EQ(plain->status, 503);
  EXPECT_EQ(plain->json()["error"]["code"], 503);
  EXPECT_EQ(stream->events().back()["error"]["code"], 503);
  EXPECT_TRUE(stream->body.ends_with("data: [DONE]\n\n"));
  for (const size_t job : {0, 1}) {
    EXPECT_TRUE(engine_.cancelled(job));
    engine_.finish(job, FinishReason::cancelled);
  }
  plain->run();  // what still comes changes nothing
  stream->run();
  EXPECT_TRUE(stream->body.ends_with("data: [DONE]\n\n"));
}

// D14: bytes that are no UTF-8 come out as U+FFFD in valid JSON.
TEST_F(OpenAiAnswer, InvalidUtf8FromTheModel) {
  auto r = complete(R"({"prompt":[255,254],"echo":true,"logprobs":1,"max_tokens":4})");
  engine_.say(0, "\xff\xc3", true);
  engine_.finish(0, FinishReason::length);
  r->run();
  EXPECT_EQ(r->json()["choices"][0]["text"], "\ufffd\ufffd\ufffd\ufffd");
}

TEST_F(OpenAiAnswer, EchoWithoutTokens) {
  auto r = complete(R"({"prompt":"abc","echo":true,"max_tokens":0,"logprobs":0})");
  EXPECT_EQ(engine_.jobs[0].request.sampling.max_tokens, 1);
  EXPECT_EQ(engine_.jobs[0].request.sampling.prompt_logprobs, 0);
  engine_.say(0, "d", true);
  GenerationResult result;
  result.reason = FinishReason::length;
  result.prompt_logprobs = {{}, {{'b', -1.0f}}, {{'c', -2.0f}}};
  engine_.jobs[0].generation->finish(result);
  engine_.jobs[0].generation->notify();
  r->run();
  const Json j = r->json();
  EXPECT_EQ(j["choices"][0]["text"], "abc");
  EXPECT_EQ(j["choices"][0]["logprobs"]["token_logprobs"], Json::array({nullptr, -1.0, -2.0}));
  EXPECT_EQ(j["usage"]["completion_tokens"], 0);
}

TEST_F(OpenAiAnswer, LongBodiesGoThroughTheWorker) {
  make_api({.api_key = "", .inline_body_bytes = 10});
  auto r = std::make_shared<RecordingResponder>();
  api_->handle({"POST", "/tokenize", {}, R"({"prompt":"abc"})"}, r);
  while (!r->ended) {
    r->run();
    std::this_thread::yield();
  }
  EXPECT_EQ(r->json()["tokens"], Json::array({'a', 'b', 'c'}));
}

TEST_F(OpenAiAnswer, SmallRoutes) {
  EXPECT_EQ(request("GET", "/health")->status, 200);
  EXPECT_EQ(request("POST", "/ping")->status, 200);
  EXPECT_TRUE(request("GET", "/version")->json()["version"].is_string());
  const Json models = request("GET", "/v1/models")->json();
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][1]["id"], "alias");
  EXPECT_EQ(models["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(request("GET", "/v1/models/al%69as")->json()["id"], "alias");
  EXPECT_EQ(request("GET", "/v1/models/none")->status, 404);
  EXPECT_EQ(request("POST", "/detokenize", R"({"tokens":[97,255]})")->json()["prompt"], "a\ufffd");
  EXPECT_EQ(request("POST", "/tokenize", R"({"prompt":"<|im_end|>","return_token_strs":true})")
                ->json()["token_strs"],
            Json::array({"<|im_end|>"}));
  EXPECT_EQ(request("GET", "/nowhere?x=1")->status, 404);
  auto wrong = request("GET", "/v1/completions");
  EXPECT_EQ(wrong->status, 405);
  EXPECT_EQ(wrong->header("Allow"), "POST, OPTIONS");
  EXPECT_EQ(request("OPTIONS", "/v1/completions")->status, 204);
  EXPECT_EQ(request("POST", "/v1/completions", "a=b",
                    {{"content-type", "application/x-www-form-urlencoded"}})
                ->status,
            415);
  EXPECT_NE(request("GET", "/metrics")
                ->body.find("vllm:num_requests_running{model_name=\"tiny\",engine=\"0\"} 0"),
            std::string::npos);
}

TEST_F(OpenAiAnswer, ApiKey) {
  make_api({.api_key = "secret"});
  EXPECT_EQ(request("GET", "/health")->status, 200);
  EXPECT_EQ(request("GET", "/metrics")->status, 200);
  EXPECT_EQ(request("OPTIONS", "/v1/models")->status, 204);
  for (const char* value :
       {"", "secret", "Bearer", "Bearer secre", "Bearer secretx", "Basic secret"}) {
    auto r = request("GET", "/v1/models", "", {{"Authorization", value}});
    EXPECT_EQ(r->status, 401) << value;
    EXPECT_EQ(r->json(), (Json{{"error", "Unauthorized"}}));
  }
  EXPECT_EQ(request("GET", "/v1/models", "", {{"authorization", "bearer secret"}})->status, 200);
}

}  // namespace
}  // namespace pagefold
