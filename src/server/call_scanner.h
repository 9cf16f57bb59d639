// One call of a tool written as a JSON object, {"name": ..., "arguments": ...}, read as it comes.
#pragma once

#include <string>
#include <string_view>

namespace pagefold {

// Arguments are handed out as soon as the name is known, byte for byte as they were written.
class CallScanner {
 public:
  enum class Step : char { more, done, broken };
  // Takes the next character of the object. The first is its opening bracket.
  Step put(char c);

  bool named() const { return named_; }
  const std::string& name() const { return name_; }
  // Arguments that came since the last call; "" while there is no name.
  std::string take_arguments();
  // All that was put.
  const std::string& text() const { return text_; }
  bool has_arguments() const { return arguments_seen_; }
  // No bracket is open but the object's own.
  bool balanced() const { return depth_ == 1 && !in_string_; }

 private:
  void end_of_string();
  std::string text_, key_, name_, pending_;
  size_t string_begin_ = 0;  // of the string being read
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
  bool at_value_ = false;      // behind a colon at depth 1
  bool in_arguments_ = false;  // inside the value of "arguments" or "parameters"
  bool named_ = false, arguments_seen_ = false;
};

}  // namespace pagefold
