#include "server/message_reader.h"

#include <gtest/gtest.h>

#include <optional>

namespace pagefold {
namespace {

struct Whole {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Whole&) const = default;
};

void add(Whole& whole, const MessageDelta& delta) {
  whole.reasoning += delta.reasoning;
  whole.content += delta.content;
  for (const ToolCallDelta& call : delta.calls) {
    if (call.begins) {
      ASSERT_EQ(static_cast<size_t>(call.index), whole.calls.size());
      whole.calls.emplace_back(call.name, call.arguments);
    } else {
      ASSERT_EQ(static_cast<size_t>(call.index) + 1, whole.calls.size());
      whole.calls.back().second += call.arguments;
    }
  }
}

// The same however the text is cut.
Whole read(const MessageFormat& format, std::string_view text) {
  std::optional<Whole> first;
  for (const size_t step : {text.size() + 1, size_t{1}, size_t{2}, size_t{3}, size_t{7}}) {
    MessageReader reader(format);
    Whole whole;
    for (size_t i = 0; i < text.size(); i += step) add(whole, reader.push(text.substr(i, step)));
    add(whole, reader.finish());
    EXPECT_EQ(static_cast<size_t>(reader.calls()), whole.calls.size());
    if (!first) first = whole;
    EXPECT_EQ(first->reasoning, whole.reasoning) << text << " by " << step;
    EXPECT_EQ(first->content, whole.content) << text << " by " << step;
    EXPECT_EQ(first->calls, whole.calls) << text << " by " << step;
  }
  return *first;
}

const MessageFormat kHermes{.tools = ToolDialect::hermes};
const MessageFormat kLlama{.tools = ToolDialect::llama3_json};
const MessageFormat kMistral{.tools = ToolDialect::mistral};

void expect(const MessageFormat& format, std::string_view text, const Whole& wanted) {
  const Whole got = read(format, text);
  EXPECT_EQ(got.reasoning, wanted.reasoning) << text;
  EXPECT_EQ(got.content, wanted.content) << text;
  EXPECT_EQ(got.calls, wanted.calls) << text;
}

TEST(MessageReader, PlainTextStaysAsItIs) {
  for (const auto& format : {MessageFormat{}, kHermes, kLlama, kMistral}) {
    for (const std::string text :
         {"", "  hello <tool> world\n ", "<", "a <tool_cal", "x {\"name\": 1}"}) {
      expect(format, text, {"", text, {}});
    }
  }
}

TEST(MessageReader, Hermes) {
  expect(kHermes,
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>",
         {"", "", {{"f", R"({"a": [1, "}\""]})"}}});
  expect(kHermes,
         "Let me see.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
         "<tool_call>{\"arguments\": {\"x\":1}, \"name\": \"g\"}</tool_call>\n",
         {"", "Let me see.", {{"f", "{}"}, {"g", R"({"x":1})"}}});
  // What is no call stays text; a call that is cut off keeps what came.
  expect(kHermes, "<tool_call>\nnot json</tool_call>",
         {"", "<tool_call>\nnot json</tool_call>", {}});
  expect(kHermes, "<tool_call>{\"nam\": 1}</tool_call>",
         {"", "<tool_call>{\"nam\": 1}</tool_call>", {}});
  expect(kHermes,
         "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", {"", "", {{"f", "{\"a\": "}}});
  expect(kHermes, "<tool_call>{\"name\": \"f", {"", "<tool_call>{\"name\": \"f", {}});
}

TEST(MessageReader, Llama) {
  expect(kLlama, R"({"name": "f", "parameters": {"q": "x"}})", {"", "", {{"f", R"({"q": "x"})"}}});
  expect(kLlama,
         R"(<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"y": 2}})",
         {"", "", {{"f", "{}"}, {"g", R"({"y": 2})"}}});
  expect(kLlama, R"({"answer": 42})", {"", R"({"answer": 42})", {}});
  expect(kLlama, "The answer: {\"name\": \"f\"}", {"", "The answer: {\"name\": \"f\"}", {}});
}

TEST(MessageReader, Mistral) {
  expect(kMistral,
         R"([TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])",
         {"", "", {{"f", R"({"a": 1})"}, {"g", "{}"}}});
  expect(kMistral, R"(Hm.[TOOL_CALLS]get_weather{"city": "Rome"})",
         {"", "Hm.", {{"get_weather", R"({"city": "Rome"})"}}});
  expect(kMistral, R"([TOOL_CALLS]f[ARGS]{"a": {}})", {"", "", {{"f", R"({"a": {}})"}}});
}

TEST(MessageReader, Reasoning) {
  const MessageFormat may{.reasoning = true}, open{.reasoning = true, .reasoning_open = true};
  expect(may, "<think>\nso </thin so\n</think>\n\nYes <think>",
         {"so </thin so\n", "Yes <think>", {}});
  expect(may, "\nNo.", {"", "\nNo.", {}});
  expect(may, "<thi", {"", "<thi", {}});
  expect(open, "\nwell</think>Yes", {"well", "Yes", {}});
  expect(open, "never ending", {"never ending", "", {}});
  expect({.tools = ToolDialect::hermes, .reasoning = true},
         "<think>which?</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
         {"which?", "", {{"f", "{}"}}});
}

TEST(MessageReader, DialectsByTemplate) {
  EXPECT_EQ(tool_dialect_of("x <tool_call> y"), ToolDialect::hermes);
  EXPECT_EQ(tool_dialect_of("[TOOL_CALLS]"), ToolDialect::mistral);
  EXPECT_EQ(tool_dialect_of("<|python_tag|>"), ToolDialect::llama3_json);
  EXPECT_EQ(tool_dialect_of("plain"), ToolDialect::none);
  EXPECT_EQ(reasoning_dialect_of("a </think> b"), ReasoningDialect::qwen3);
  EXPECT_EQ(reasoning_dialect_of("plain"), ReasoningDialect::none);
}

}  // namespace
}  // namespace pagefold
