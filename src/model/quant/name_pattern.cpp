#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/quant/name_pattern.h"

#include <pcre2.h>

namespace pagefold {
namespace {

constexpr size_t kMaxPattern = 4096;
constexpr uint32_t kMaxSteps = 100000, kMaxHeapKib = 1024;

PCRE2_SPTR text_of(std::string_view s) { return reinterpret_cast<PCRE2_SPTR>(s.data()); }

}  // namespace

struct NamePattern::Code {
  std::string text;
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
};

Result<NamePattern> NamePattern::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern)
    return bad_data("a pattern of {} bytes; the limit is {}", pattern.size(), kMaxPattern);
  auto code = std::make_shared<Code>();
  code->text = pattern;
  int error = 0;
  size_t at = 0;
  code->code =
      pcre2_compile(text_of(pattern), pattern.size(), PCRE2_ANCHORED, &error, &at, nullptr);
  if (!code->code) return bad_data("'{}' is no regular expression (at byte {})", pattern, at);
  code->limits = pcre2_match_context_create(nullptr);
  if (!code->limits) return exhausted("no memory for a pattern");
  pcre2_set_match_limit(code->limits, kMaxSteps);
  pcre2_set_heap_limit(code->limits, kMaxHeapKib);
  NamePattern out;
  out.code_ = std::move(code);
  return out;
}

Result<bool> NamePattern::matches(std::string_view name) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  if (!data) return exhausted("no memory for a match");
  const int found =
      pcre2_match(code_->code, text_of(name), name.size(), 0, 0, data.get(), code_->limits);
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return bad_data("the pattern '{}' takes too much work on '{}'", code_->text, name);
}

bool names_part_of(std::string_view entry, std::string_view name) {
  if (entry.empty()) return false;
  for (size_t at = name.find(entry); at != std::string_view::npos; at = name.find(entry, at + 1)) {
    const size_t end = at + entry.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

Result<ModuleMatcher> ModuleMatcher::parse(std::string_view entry) {
  ModuleMatcher m;
  if (entry.starts_with("re:")) {
    PF_ASSIGN(NamePattern pattern, NamePattern::compile(entry.substr(3)));
    m.pattern_ = std::make_shared<const NamePattern>(std::move(pattern));
  } else {
    m.name_ = entry;
  }
  return m;
}

Result<bool> ModuleMatcher::matches(std::string_view module) const {
  if (pattern_) return pattern_->matches(module);
  return names_part_of(name_, module);
}

}  // namespace pagefold
