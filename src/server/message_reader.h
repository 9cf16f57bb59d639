// The text of an assistant's answer, as it comes, taken apart: reasoning (<think> ... </think>),
// content, and calls of tools in the notation of the model's family. Whatever looks like a call and
// is none stays content. Nothing is lost: content holds what is not reasoning and no call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pagefold {

// How a model writes calls.
//   hermes       <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>   (ChatML, Qwen)
//   llama3_json  {"name": ..., "parameters": {...}}, several with "; ", perhaps after
//   <|python_tag|> mistral      [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...] or
//   [TOOL_CALLS]name{...}
enum class ToolDialect : uint8_t { none, hermes, llama3_json, mistral };
enum class ReasoningDialect : uint8_t { none, qwen3, deepseek_r1 };

// By the template's own text; none when it shows no sign of one.
ToolDialect tool_dialect_of(std::string_view chat_template);
ReasoningDialect reasoning_dialect_of(std::string_view chat_template);

// A piece of a call: the first one of an index has its name.
struct ToolCallDelta {
  int index = 0;
  std::string name;
  std::string arguments;
  bool begins = false;
};

struct MessageDelta {
  std::string reasoning, content;
  std::vector<ToolCallDelta> calls;
  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

struct MessageFormat {
  ToolDialect tools = ToolDialect::none;
  bool reasoning = false;       // <think> at the beginning opens it
  bool reasoning_open = false;  // the prompt has opened it already
};

class MessageReader {
 public:
  explicit MessageReader(MessageFormat format);
  ~MessageReader();
  MessageReader(MessageReader&&) noexcept;
  MessageDelta push(std::string_view text);
  MessageDelta finish();
  int calls() const;  // begun so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefold
