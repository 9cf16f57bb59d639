#include "server/message_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/call_scanner.h"

namespace pagefold {
namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";
constexpr std::string_view kPlainHead = R"({"name":"-","arguments":)";
constexpr std::string_view kSpaces = " \n\r\t";

// Length of the longest end of `text` that `mark` begins with.
size_t open_end(std::string_view text, std::string_view mark) {
  size_t n = std::min(text.size(), mark.size() - 1);
  while (n > 0 && !text.ends_with(mark.substr(0, n))) --n;
  return n;
}

bool only_spaces(std::string_view text) {
  return text.find_first_not_of(kSpaces) == std::string_view::npos;
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

}  // namespace

struct MessageReader::Impl {
  explicit Impl(MessageFormat f) : format(f) {
    if (f.reasoning_open) {
      part = Part::reasoning;
    } else if (f.reasoning) {
      part = Part::before;
    } else {
      part = Part::content;
    }
  }

  // before: <think> may come. between: what follows a call (closing marks, commas).
  enum class Part : char { before, reasoning, after_reasoning, content, call, between };

  std::string_view mark() const {
    switch (format.tools) {
      case ToolDialect::hermes:
        return "<tool_call>";
      case ToolDialect::llama3_json:
        return "<|python_tag|>";
      case ToolDialect::mistral:
        return "[TOOL_CALLS]";
      default:
        return "";
    }
  }

  // Takes what it can of `held`; false: more text is needed.
  bool step(MessageDelta& out, bool last);
  bool before(bool last);
  bool reasoning(MessageDelta& out, bool last);
  bool content(MessageDelta& out, bool last);
  bool call(MessageDelta& out, bool last);
  bool between(bool last);
  void begin_call(std::string opening);
  void give_up_call(MessageDelta& out);
  void add_arguments(MessageDelta& out, bool begins);

  const MessageFormat format;
  Part part;
  std::string held;  // came and is not given out
  bool content_begun = false;
  bool marked = false;  // the answer is a list of calls from here on (mistral, llama3_json)
  std::string opening;  // of the call at hand, for the case that it is none
  std::optional<CallScanner> scanner;
  std::string plain_name;  // mistral's name{...}
  int begun = 0;           // calls
  bool announced = false;  // the call at hand
};

bool MessageReader::Impl::before(bool last) {
  const size_t at = std::min(held.find_first_not_of(kSpaces), held.size());
  const std::string_view text = std::string_view(held).substr(at);
  if (text.starts_with(kThink)) {
    held.erase(0, at + kThink.size());
    part = Part::reasoning;
    return true;
  }
  if (!last && text.size() < kThink.size() && kThink.starts_with(text)) return false;
  part = Part::content;
  return true;
}

bool MessageReader::Impl::reasoning(MessageDelta& out, bool last) {
  if (out.reasoning.empty() && !content_begun) {
    // Line ends at the very beginning belong to the tag.
    const size_t at = held.find_first_not_of("\r\n");
    held.erase(0, std::min(at, held.size()));
    content_begun = !held.empty();
  }
  const size_t end = held.find(kThinkEnd);
  if (end != std::string::npos) {
    out.reasoning += held.substr(0, end);
    held.erase(0, end + kThinkEnd.size());
    part = Part::after_reasoning;
    content_begun = false;
    return true;
  }
  const size_t keep = last ? 0 : open_end(held, kThinkEnd);
  out.reasoning += held.substr(0, held.size() - keep);
  held.erase(0, held.size() - keep);
  return false;
}

void MessageReader::Impl::begin_call(std::string text) {
  opening = std::move(text);
  scanner.reset();
  plain_name.clear();
  announced = false;
  part = Part::call;
}

bool MessageReader::Impl::content(MessageDelta& out, bool last) {
  const std::string_view sign = mark();
  if (sign.empty()) {
    out.content += held;
    held.clear();
    return false;
  }
  // Llama writes a bare object as the whole answer.
  if (format.tools == ToolDialect::llama3_json && !content_begun) {
    const size_t at = held.find_first_not_of(kSpaces);
    if (at == std::string::npos && !last) return false;
    if (at != std::string::npos && held[at] == '{') {
      const std::string spaces = held.substr(0, at);
      held.erase(0, at);
      begin_call(spaces);
      return true;
    }
  }
  const size_t found = held.find(sign);
  if (found != std::string::npos) {
    // White space in front of a call is layout.
    const std::string text = held.substr(0, found);
    const size_t end = text.find_last_not_of(kSpaces) + 1;
    out.content += text.substr(0, end);
    content_begun |= end > 0;
    held.erase(0, found + sign.size());
    marked = true;
    begin_call(text.substr(end) + std::string(sign));
    return true;
  }
  if (last && begun > 0 && only_spaces(held)) held.clear();
  size_t keep = last ? 0 : open_end(held, sign);
  // White space at the end may be in front of a call.
  if (!last) {
    const size_t text_end = held.find_last_not_of(kSpaces, held.size() - keep - 1);
    if (keep < held.size()) {
      keep = held.size() - (text_end == std::string::npos ? 0 : text_end + 1);
    }
  }
  out.content += held.substr(0, held.size() - keep);
  content_begun |= held.size() > keep;
  held.erase(0, held.size() - keep);
  return false;
}

void MessageReader::Impl::add_arguments(MessageDelta& out, bool begins) {
  std::string arguments = scanner ? scanner->take_arguments() : std::string();
  if (!begins && arguments.empty()) return;
  out.calls.push_back({begun - 1, begins ? (plain_name.empty() ? scanner->name() : plain_name) : "",
                       std::move(arguments), begins});
}

void MessageReader::Impl::give_up_call(MessageDelta& out) {
  if (!announced) {
    out.content += opening + plain_name;
    if (scanner) out.content += scanner->text().substr(plain_name.empty() ? 0 : kPlainHead.size());
    content_begun = true;
  }
  scanner.reset();
  part = Part::content;
}

bool MessageReader::Impl::call(MessageDelta& out, bool last) {
  size_t i = 0;
  for (; i < held.size(); ++i) {
    const char c = held[i];
    if (!scanner) {
      if (kSpaces.find(c) != std::string_view::npos || (c == '[' && marked && plain_name.empty())) {
        if (plain_name.empty()) opening += c;
        continue;
      }
      if (c != '{' && format.tools == ToolDialect::mistral &&
          (is_name_character(c) || (!plain_name.empty() && (c == '[' || c == ']')))) {
        plain_name += c;
        continue;
      }
      if (c == ']' && plain_name.empty() && begun > 0) continue;
      if (plain_name.ends_with("[ARGS]")) plain_name.resize(plain_name.size() - 6);
      if (c != '{') {
        held.erase(0, i);
        give_up_call(out);
        return true;
      }
      scanner.emplace();
      if (!plain_name.empty()) {  // the object is the arguments: put where they would be
        for (const char p : kPlainHead) scanner->put(p);
      }
    }
    CallScanner::Step step = scanner->put(c);
    if (scanner->named() && scanner->has_arguments() && !announced) {
      announced = true;
      ++begun;
      add_arguments(out, true);
    }
    if (!plain_name.empty() && step == CallScanner::Step::more && c == '}' && scanner->balanced()) {
      step = CallScanner::Step::done;
    }
    if (step == CallScanner::Step::more) continue;
    held.erase(0, i + 1);
    if (announced) add_arguments(out, false);
    if (step == CallScanner::Step::broken || !announced) {
      give_up_call(out);
    } else {
      part = Part::between;
    }
    return true;
  }
  held.clear();
  if (announced) add_arguments(out, false);
  if (last) give_up_call(out);
  return false;
}

// After a call: its closing mark, or what separates it from the next one.
bool MessageReader::Impl::between(bool last) {
  const size_t at = held.find_first_not_of(kSpaces);
  if (at == std::string::npos) {
    if (last) held.clear();
    return false;
  }
  std::string_view rest = std::string_view(held).substr(at);
  constexpr std::string_view kClose = "</tool_call>";
  if (format.tools == ToolDialect::hermes) {
    if (rest.starts_with(kClose)) {
      held.erase(0, at + kClose.size());
      part = Part::content;
      return true;
    }
    if (!last && kClose.starts_with(rest)) return false;
    if (last && kClose.starts_with(rest)) {
      held.clear();
      return false;
    }
  } else if (format.tools == ToolDialect::llama3_json && (rest[0] == ';' || rest[0] == '{')) {
    held.erase(0, at + (rest[0] == ';' ? 1 : 0));
    begin_call("");
    return true;
  } else if (format.tools == ToolDialect::mistral && (rest[0] == ',' || rest[0] == ']')) {
    const bool next = rest[0] == ',';
    held.erase(0, at + 1);
    if (next) begin_call("");
    return true;
  }
  part = Part::content;
  return true;
}

bool MessageReader::Impl::step(MessageDelta& out, bool last) {
  switch (part) {
    case Part::before:
      return before(last);
    case Part::reasoning:
      return reasoning(out, last);
    case Part::after_reasoning: {
      const size_t at = held.find_first_not_of(kSpaces);
      held.erase(0, std::min(at, held.size()));
      if (held.empty()) return false;
      part = Part::content;
      return true;
    }
    case Part::content:
      return !held.empty() && content(out, last);
    case Part::call:
      return (last || !held.empty()) && call(out, last);
    case Part::between:
      return between(last);
  }
  return false;
}

MessageReader::MessageReader(MessageFormat format) : impl_(std::make_unique<Impl>(format)) {}
MessageReader::~MessageReader() = default;
MessageReader::MessageReader(MessageReader&&) noexcept = default;

MessageDelta MessageReader::push(std::string_view text) {
  MessageDelta out;
  impl_->held += text;
  while (impl_->step(out, false)) {
  }
  return out;
}

MessageDelta MessageReader::finish() {
  MessageDelta out;
  while (impl_->step(out, true)) {
  }
  out.content += std::exchange(impl_->held, {});
  return out;
}

int MessageReader::calls() const { return impl_->begun; }

ToolDialect tool_dialect_of(std::string_view t) {
  const auto has = [t](std::string_view word) { return t.find(word) != std::string_view::npos; };
  if (has("[TOOL_CALLS]")) return ToolDialect::mistral;
  if (has("<tool_call>")) return ToolDialect::hermes;
  if (has("<|python_tag|>") || (has("\"parameters\"") && has("ipython"))) {
    return ToolDialect::llama3_json;
  }
  return ToolDialect::none;
}

ReasoningDialect reasoning_dialect_of(std::string_view t) {
  const auto has = [t](std::string_view word) { return t.find(word) != std::string_view::npos; };
  if (!has(kThinkEnd)) return ReasoningDialect::none;
  return has("<\xEF\xBD\x9C"
             "Assistant\xEF\xBD\x9C>")
             ? ReasoningDialect::deepseek_r1
             : ReasoningDialect::qwen3;
}

}  // namespace pagefold
