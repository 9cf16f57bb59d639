#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "eval/cases.h"

namespace pagefold::eval {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// The first or last number of a text.
std::optional<double> number_in(std::string_view text, bool last) {
  std::optional<double> found;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!is_digit(text[at])) continue;
    const bool minus = at > 0 && text[at - 1] == '-' && (at == 1 || !is_digit(text[at - 2]));
    std::string digits;
    for (; at < text.size(); ++at) {
      const bool inner = at + 1 < text.size() && is_digit(text[at + 1]);
      if (is_digit(text[at]) || (text[at] == '.' && inner)) {
        digits += text[at];
      } else if (text[at] != ',' || !inner) {
        break;
      }
    }
    double value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    found = minus ? -value : value;
    if (!last) return found;
  }
  return found;
}

}  // namespace

std::optional<double> final_number(std::string_view text) {
  const size_t mark = text.rfind("####");
  if (mark != std::string_view::npos) {
    if (const auto number = number_in(text.substr(mark + 4), false)) return number;
  }
  return number_in(text, true);
}

Result<std::vector<Case>> read_qa_cases(std::string_view text, int64_t count, int64_t shots) {
  struct Pair {
    std::string question, answer;
    int64_t line = 0;
  };
  std::vector<Pair> pairs;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto json = parse_json(line);
    if (!json.ok() || !json->is_object() || !json->contains("question") ||
        !(*json)["question"].is_string() || !json->contains("answer") ||
        !(*json)["answer"].is_string())
      return bad_data("qa: line {}: expected {{\"question\": ..., \"answer\": ...}}", number);
    pairs.push_back(
        {(*json)["question"].get<std::string>(), (*json)["answer"].get<std::string>(), number});
  }
  const auto n = static_cast<int64_t>(pairs.size());
  if (n < shots + 1)
    return bad_input("qa: {} lines leave no question beside {} examples", n, shots);
  std::string examples;
  for (int64_t i = n - shots; i < n; ++i) {
    const Pair& p = pairs[static_cast<size_t>(i)];
    examples += fmt::format("Question: {}\nAnswer: {}\n\n", p.question, p.answer);
  }
  std::vector<Case> out;
  for (int64_t i = 0; i < std::min(count, n - shots); ++i) {
    const Pair& p = pairs[static_cast<size_t>(i)];
    const std::optional<double> wanted = final_number(p.answer);
    if (!wanted) return bad_data("qa: line {}: the answer has no number", p.line);
    Case c;
    c.question = fmt::format(
        "Solve the problem step by step. End with a line \"#### NUMBER\".\n\n{}Question: "
        "{}\nAnswer:",
        examples, p.question);
    c.expected = *wanted;
    out.push_back(std::move(c));
  }
  return out;
}

Grade grade_qa(const Json& expected, std::string_view answer) {
  Grade g;
  const std::optional<double> number = final_number(answer);
  g.parsed = number.has_value();
  const double want = expected.get<double>();
  g.score = number && std::abs(*number - want) <= 1e-6 * std::max(1.0, std::abs(want)) ? 1 : 0;
  return g;
}

}  // namespace pagefold::eval
