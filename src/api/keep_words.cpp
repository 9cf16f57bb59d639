#include "api/keep_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kv/words.h"

namespace pagefold {
namespace {

constexpr size_t kMostWords = 1024;
constexpr int64_t kMostKept = int64_t{1} << 30;
constexpr std::string_view kKeptRoles[] = {"system", "developer", "user", "assistant", "tool"};

bool read_number(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= -kMostKept &&
         value <= kMostKept;
}

Status add_word(std::string_view word, KeepWish& wish) {
  if (word == "tools") {
    wish.tools = true;
    return ok_status();
  }
  if (std::find(std::begin(kKeptRoles), std::end(kKeptRoles), word) != std::end(kKeptRoles)) {
    wish.roles.emplace_back(word);
    return ok_status();
  }
  int64_t index = 0;
  if (read_number(word, index)) {
    wish.messages.push_back(index);
    return ok_status();
  }
  const size_t colon = word.find(':');
  KeepSpan span;
  if (colon != std::string_view::npos && read_number(word.substr(0, colon), span.begin) &&
      read_number(word.substr(colon + 1), span.end) && span.begin >= 0 && span.begin < span.end) {
    wish.spans.push_back(span);
    return ok_status();
  }
  return bad_input(
      "kv.keep: \"{}\" is none of system, tools, user, assistant, tool, developer, none, the index "
      "of a message, or a span BEGIN:END of prompt tokens",
      shown(word));
}

}  // namespace

Result<KeepWish> parse_keep(std::string_view words) {
  KeepWish wish;
  if (words.empty() || words == "none") return wish;
  for (size_t n = 0; !words.empty(); ++n) {
    if (n == kMostWords) return bad_input("kv.keep: at most {} entries", kMostWords);
    const size_t comma = std::min(words.find(','), words.size());
    PF_TRY(add_word(words.substr(0, comma), wish));
    words.remove_prefix(std::min(comma + 1, words.size()));
  }
  return wish;
}

std::vector<KeepSpan> joined_spans(std::vector<KeepSpan> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const KeepSpan& a, const KeepSpan& b) { return a.begin < b.begin; });
  std::vector<KeepSpan> out;
  for (const KeepSpan& s : spans) {
    if (s.begin >= s.end) continue;
    if (!out.empty() && s.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, s.end);
    } else {
      out.push_back(s);
    }
  }
  return out;
}

std::string spans_text(const std::vector<KeepSpan>& spans) {
  std::string out;
  for (const KeepSpan& s : spans) {
    out += fmt::format("{}{}:{}", out.empty() ? "" : ",", s.begin, s.end);
  }
  return out;
}

}  // namespace pagefold
