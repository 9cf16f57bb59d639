#include "server/call_scanner.h"

#include <utility>

#include "base/json.h"

namespace pagefold {
namespace {

constexpr int kMaxDepth = 200;

std::string decoded(std::string_view json_string) {
  auto value = parse_json(json_string);
  return value.ok() && value->is_string() ? value->get<std::string>() : std::string();
}

}  // namespace

// A string at depth 1 has ended: a key, or the value of one.
void CallScanner::end_of_string() {
  const std::string_view whole = std::string_view(text_).substr(string_begin_);
  if (!at_value_) {
    key_ = decoded(whole);
  } else if (key_ == "name" && !named_) {
    name_ = decoded(whole);
    named_ = !name_.empty();
  }
}

CallScanner::Step CallScanner::put(char c) {
  text_ += c;
  if (text_.size() == 1) {
    depth_ = 1;
    return c == '{' ? Step::more : Step::broken;
  }
  if (in_string_) {
    if (in_arguments_) pending_ += c;
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (depth_ == 1) end_of_string();
    }
    return Step::more;
  }
  const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
  if (depth_ == 1 && (c == ',' || c == '}')) {
    in_arguments_ = at_value_ = false;
    return c == '}' ? Step::done : Step::more;
  }
  if (depth_ == 1 && c == ':') {
    if (at_value_) return Step::broken;
    at_value_ = true;
    in_arguments_ = !arguments_seen_ && (key_ == "arguments" || key_ == "parameters");
    arguments_seen_ |= in_arguments_;
    return Step::more;
  }
  if (in_arguments_ && !(space && depth_ == 1)) pending_ += c;
  if (c == '"') {
    in_string_ = true;
    string_begin_ = text_.size() - 1;
  } else if (c == '{' || c == '[') {
    if (++depth_ > kMaxDepth || !at_value_) return Step::broken;
  } else if (c == '}' || c == ']') {
    --depth_;
    if (depth_ < 1) return Step::broken;
  } else if (depth_ == 1 && !at_value_ && !space) {
    return Step::broken;
  }
  return Step::more;
}

std::string CallScanner::take_arguments() {
  return named_ ? std::exchange(pending_, {}) : std::string();
}

}  // namespace pagefold
