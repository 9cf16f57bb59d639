// Requests for a form of the answer, and answers with calls and reasoning, on a scripted engine.
#include <gtest/gtest.h>

#include <thread>

#include "fakes.h"
#include "server/openai_api.h"

namespace pagefold {
namespace {

using test::ByteTokenizer;

class OpenAiFormat : public ::testing::Test {
 protected:
  OpenAiFormat() { make_api({}, ReasoningDialect::none); }
  // Clients leave: a job that is not over holds its responder, and that holds the job.
  ~OpenAiFormat() override {
    for (const auto& r : sent_) {
      r->run();
      r->leave();
    }
  }
  void make_api(ToolDialect tools, ReasoningDialect reasoning) {
    ApiModel model = test::byte_model(tokenizer_, &chat_);
    model.tools = tools;
    model.tools_in_template = false;
    model.reasoning = reasoning;
    api_ = std::make_unique<OpenAiApi>(std::move(model), engine_, ApiOptions{});
  }
  // Sends; the request is with the engine, or refused, when this returns.
  std::shared_ptr<test::RecordingResponder> send(std::string_view rest, bool chat = true) {
    auto r = std::make_shared<test::RecordingResponder>();
    sent_.push_back(r);
    const std::string begin =
        chat ? R"({"messages":[{"role":"user","content":"hi"}])" : R"({"prompt":"hi")";
    const size_t jobs = engine_.jobs.size();
    api_->handle({"POST",
                  chat ? "/v1/chat/completions" : "/v1/completions",
                  {},
                  begin + std::string(rest) + "}"},
                 r);
    while (!r->ended && engine_.jobs.size() == jobs) {
      r->run();
      std::this_thread::yield();
    }
    return r;
  }
  void answer(const std::shared_ptr<test::RecordingResponder>& r, std::string_view text) {
    const size_t job = engine_.jobs.size() - 1;
    engine_.say(job, text);
    engine_.token(job, ByteTokenizer::kEnd);
    engine_.finish(job, FinishReason::stop);
    r->run();
  }
  TokenGrammar* grammar() { return engine_.jobs.back().request.grammar.get(); }
  std::string prompt() { return tokenizer_.decode(engine_.jobs.back().request.tokens, false); }

  ByteTokenizer tokenizer_;
  ChatTemplate chat_ = *ChatTemplate::parse(test::kChatMl);
  test::ScriptedEngine engine_;
  std::unique_ptr<OpenAiApi> api_;
  std::vector<std::shared_ptr<test::RecordingResponder>> sent_;
};

constexpr std::string_view kTools =
    R"(,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",
    "properties":{"city":{"type":"string"}},"required":["city"]}}},
    {"type":"function","function":{"name":"now"}}])";

TEST_F(OpenAiFormat, TheFormReachesTheEngine) {
  send("");
  EXPECT_EQ(grammar(), nullptr);
  send(R"(,"response_format":{"type":"text"})");
  EXPECT_EQ(grammar(), nullptr);
  send(R"(,"response_format":{"type":"json_object"})");
  ASSERT_NE(grammar(), nullptr);
  EXPECT_TRUE(grammar()->matches(R"({"a":1})"));
  EXPECT_FALSE(grammar()->matches("[1]"));
  send(R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,
      "schema":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}}})");
  EXPECT_TRUE(grammar()->matches(R"({"x":1})"));
  EXPECT_FALSE(grammar()->matches("{}"));
  // Where clients of other servers put the schema: it must not be passed over.
  for (const std::string format :
       {R"("type":"json_object","schema":)", R"("type":"json_object","value":)",
        R"("type":"json_schema","schema":)",
        R"("type":"json_schema","json_schema":null,"value":)"}) {
    send(R"(,"response_format":{)" + format +
         R"({"type":"object","properties":{"x":{}},"required":["x"]}})");
    ASSERT_NE(grammar(), nullptr) << format;
    EXPECT_TRUE(grammar()->matches(R"({"x":1})")) << format;
    EXPECT_FALSE(grammar()->matches("{}")) << format;
  }
  for (const std::string body :
       {R"("guided_json":{"type":"integer"})", R"("guided_json":"{\"type\":\"integer\"}")",
        R"("guided_regex":"\\d+")", R"("guided_choice":["5","yes"])",
        R"("guided_grammar":"root ::= [0-9]")",
        R"("structured_outputs":{"json":{"type":"integer"}})",
        R"("structured_outputs":{"regex":"5|6"})",
        R"("structured_outputs":{"choice":["5"],"json_object":false,"disable_fallback":true})",
        R"("structured_outputs":{"grammar":"root ::= \"5\""})"}) {
    send("," + body, false);
    ASSERT_NE(grammar(), nullptr) << body;
    EXPECT_TRUE(grammar()->matches("5")) << body;
    EXPECT_FALSE(grammar()->matches("x")) << body;
  }
  // The same form is made once.
  send(R"(,"guided_choice":["a","b"])");
  const TokenGrammar* first = grammar();
  send(R"(,"guided_choice":["a","b"])");
  EXPECT_EQ(grammar(), first);
}

TEST_F(OpenAiFormat, ToolsAreToldAndCallsRead) {
  const auto r = send(kTools);
  EXPECT_NE(prompt().find("get_weather"), std::string::npos);
  EXPECT_EQ(grammar(), nullptr);
  answer(r,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
         "\"Rome\"}}\n</tool_call>\n"
         "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
  const Json choice = r->json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json message = choice["message"];
  EXPECT_TRUE(message["content"].is_null());
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "get_weather");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"city": "Rome"})");
  EXPECT_EQ(message["tool_calls"][1]["function"]["name"], "now");
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
  const auto plain = send(kTools);
  answer(plain, "I know it: sunny.");
  EXPECT_EQ(plain->json()["choices"][0]["message"]["content"], "I know it: sunny.");
  EXPECT_EQ(plain->json()["choices"][0]["finish_reason"], "stop");
}

TEST_F(OpenAiFormat, CallsAreStreamed) {
  const auto r = send(std::string(kTools) + R"(,"stream":true)");
  answer(r,
         "Well. <tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
         "\"Rome\"}}\n</tool_call>");
  std::string content, arguments, name, reason;
  int begun = 0;
  for (const Json& event : r->events()) {
    const Json& choice = event["choices"][0];
    const Json delta = choice["delta"];
    if (delta.contains("content")) content += delta["content"].get<std::string>();
    if (choice["finish_reason"].is_string()) reason = choice["finish_reason"].get<std::string>();
    if (!delta.contains("tool_calls")) continue;
    const Json& call = delta["tool_calls"][0];
    EXPECT_EQ(call["index"], 0);
    if (call.contains("id")) {
      ++begun;
      name = call["function"]["name"].get<std::string>();
    }
    arguments += call["function"]["arguments"].get<std::string>();
  }
  EXPECT_EQ(content, "Well.");
  EXPECT_EQ(arguments, R"({"city": "Rome"})");
  EXPECT_EQ(name, "get_weather");
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(reason, "tool_calls");
}

TEST_F(OpenAiFormat, AskedForCallsAreConstrained) {
  const std::string rome = R"({"name": "get_weather", "arguments": {"city": "Rome"}})";
  const std::string now = R"({"name": "now", "arguments": {}})";
  const auto tagged = [](const std::string& call) {
    return "<tool_call>\n" + call + "\n</tool_call>";
  };
  send(std::string(kTools) + R"(,"tool_choice":"required")");
  EXPECT_TRUE(grammar()->matches(tagged(rome) + "\n" + tagged(now)));
  EXPECT_FALSE(grammar()->matches("no"));
  EXPECT_FALSE(grammar()->matches(tagged(R"({"name": "get_weather", "arguments": {}})")));
  send(std::string(kTools) + R"(,"tool_choice":"required","parallel_tool_calls":false)");
  EXPECT_TRUE(grammar()->matches(tagged(rome)));
  EXPECT_FALSE(grammar()->matches(tagged(rome) + "\n" + tagged(now)));
  send(std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"now"}})");
  EXPECT_TRUE(grammar()->matches(tagged(now)));
  EXPECT_FALSE(grammar()->matches(tagged(rome)));
  make_api(ToolDialect::llama3_json, ReasoningDialect::none);
  send(std::string(kTools) + R"(,"tool_choice":"required")");
  EXPECT_TRUE(grammar()->matches(
      R"({"name": "now", "parameters": {}}; {"name": "now", "parameters": {}})"));
  make_api(ToolDialect::mistral, ReasoningDialect::none);
  send(std::string(kTools) + R"(,"tool_choice":"required")");
  EXPECT_TRUE(grammar()->matches("[TOOL_CALLS][" + rome + ", " + now + "]"));
}

TEST_F(OpenAiFormat, ReasoningIsKeptApart) {
  make_api(ToolDialect::hermes, ReasoningDialect::qwen3);
  auto r = send("");
  answer(r, "<think>\nhm\n</think>\n\nYes.");
  EXPECT_EQ(r->json()["choices"][0]["message"]["reasoning_content"], "hm\n");
  EXPECT_EQ(r->json()["choices"][0]["message"]["content"], "Yes.");
  r = send(R"(,"stream":true)");
  answer(r, "<think>hm</think>Yes.");
  std::string reasoning, content;
  for (const Json& event : r->events()) {
    const Json delta = event["choices"][0]["delta"];
    if (delta.contains("reasoning_content"))
      reasoning += delta["reasoning_content"].get<std::string>();
    if (delta.contains("content")) content += delta["content"].get<std::string>();
  }
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(content, "Yes.");
  // A form holds behind the reasoning.
  send(R"(,"guided_choice":["yes","no"])");
  EXPECT_TRUE(grammar()->matches("<think>well </thin</think>\n\nyes"));
  EXPECT_TRUE(grammar()->matches("no"));
  EXPECT_FALSE(grammar()->matches("<think>yes"));
}

}  // namespace
}  // namespace pagefold
