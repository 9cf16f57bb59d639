#include "kv/words.h"

#include <charconv>
#include <cmath>

namespace pagefold {
namespace {

constexpr size_t kLongestShown = 64;
constexpr size_t kMostSpans = 1024;
constexpr int64_t kMostTokens = int64_t{1} << 30;

template <class T>
bool parse_all(std::string_view word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace

std::string_view shown(std::string_view word) { return word.substr(0, kLongestShown); }

std::string joined(std::span<const std::string_view> words) {
  std::string out;
  for (const std::string_view w : words) {
    if (!out.empty()) out += ", ";
    out += w;
  }
  return out;
}

Result<int64_t> parse_count(std::string_view where, std::string_view word, int64_t low,
                            int64_t high) {
  int64_t value = 0;
  if (!parse_all(word, value) || value < low || value > high) {
    return bad_input("{}: expected a whole number between {} and {}, got \"{}\"", where, low, high,
                     shown(word));
  }
  return value;
}

Result<bool> parse_switch(std::string_view where, std::string_view word) {
  if (word == "on" || word == "true" || word == "1") return true;
  if (word == "off" || word == "false" || word == "0") return false;
  return bad_input("{}: expected on or off, got \"{}\"", where, shown(word));
}

Result<int> parse_choice(std::string_view where, std::string_view word, std::string_view words) {
  std::string_view rest = words;
  for (int index = 0; !rest.empty(); ++index) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (rest.substr(0, comma) == word) return index;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return bad_input("{}: unknown value \"{}\"; known values: {}", where, shown(word), words);
}

Result<double> parse_param(std::string_view where, std::string_view word, const ParamSpec& spec) {
  if (!spec.words.empty()) {
    PF_ASSIGN(const int index, parse_choice(where, word, spec.words));
    return index;
  }
  double value = 0;
  const bool number = parse_all(word, value) && std::isfinite(value);
  const bool whole = !spec.integer || value == std::floor(value);
  if (!number || !whole || value < spec.low || value > spec.high) {
    return bad_input("{}: expected a {}number between {} and {}, got \"{}\"", where,
                     spec.integer ? "whole " : "", spec.low, spec.high, shown(word));
  }
  return value;
}

Status parse_budget(std::string_view word, int64_t& tokens, double& share) {
  if (!word.empty() && word.back() == '%') {
    double percent = 0;
    if (!parse_all(word.substr(0, word.size() - 1), percent) || !(percent > 0) || percent > 100) {
      return bad_input("kv.budget: expected a share above 0% and at most 100%, got \"{}\"",
                       shown(word));
    }
    share = percent / 100;
    return ok_status();
  }
  share = 0;
  PF_ASSIGN(tokens, parse_count("kv.budget", word, 1, kMostTokens));
  return ok_status();
}

Result<std::vector<KeepSpan>> parse_spans(std::string_view word, int64_t n_prompt) {
  std::vector<KeepSpan> spans;
  std::string_view rest = word;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t colon = part.find(':');
    KeepSpan span;
    const int64_t after = spans.empty() ? 0 : spans.back().end;
    if (colon == std::string_view::npos || !parse_all(part.substr(0, colon), span.begin) ||
        !parse_all(part.substr(colon + 1), span.end) || span.begin < after ||
        span.end <= span.begin || span.end > kMostTokens) {
      return bad_input(
          "kv.keep: expected ascending, disjoint spans BEGIN:END,BEGIN:END of prompt tokens, got "
          "\"{}\"",
          shown(word));
    }
    if (n_prompt > 0 && span.end > n_prompt) {
      return bad_input("kv.keep: span {}:{} ends beyond the prompt of {} tokens", span.begin,
                       span.end, n_prompt);
    }
    if (spans.size() == kMostSpans) return bad_input("kv.keep: at most {} spans", kMostSpans);
    spans.push_back(span);
  }
  return spans;
}

}  // namespace pagefold
