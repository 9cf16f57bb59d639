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

bool add_role(std::string_view word, KeepWish& wish) {
  if (word == "tools") {
    wish.tools = true;
    return true;
  }
  if (std::find(std::begin(kKeptRoles), std::end(kKeptRoles), word) == std::end(kKeptRoles)) {
    return false;
  }
  wish.roles.emplace_back(word);
  return true;
}

bool add_place(std::string_view word, KeepWish& wish) {
  int64_t index = 0;
  if (read_number(word, index)) {
    wish.messages.push_back(index);
    return true;
  }
  const size_t colon = word.find(':');
  KeepSpan span;
  if (colon == std::string_view::npos || !read_number(word.substr(0, colon), span.begin) ||
      !read_number(word.substr(colon + 1), span.end) || span.begin < 0 || span.begin >= span.end) {
    return false;
  }
  wish.spans.push_back(span);
  return true;
}

Result<KeepWish> parse_words(std::string_view words, bool places) {
  KeepWish wish;
  if (words.empty() || words == "none") return wish;
  for (size_t n = 0; !words.empty(); ++n) {
    if (n == kMostWords) return bad_input("kv.keep: at most {} entries", kMostWords);
    const size_t comma = std::min(words.find(','), words.size());
    const std::string_view word = words.substr(0, comma);
    if (word == "none") {
      return bad_input("kv.keep: \"none\" stands alone: it keeps nothing, so leave the rest out");
    }
    if (!add_role(word, wish) && !(places && add_place(word, wish))) {
      return bad_input(
          "kv.keep: \"{}\" is none of system, tools, user, assistant, tool, developer, none{}",
          shown(word),
          places ? ", the index of a message, or a span BEGIN:END of prompt tokens"
                 : "; messages and spans can be named by requests alone");
    }
    words.remove_prefix(std::min(comma + 1, words.size()));
  }
  return wish;
}

}  // namespace

Result<KeepWish> parse_keep(std::string_view words) { return parse_words(words, true); }

Result<KeepWish> parse_kept_roles(std::string_view words) { return parse_words(words, false); }

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
