#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/quant/name_pattern.h"

#include <pcre2.h>

#include <array>

namespace pagefold {
namespace {

constexpr size_t kMaxPattern = 4096;
// Of a match: tried one after the other, so that each is charged for about what it takes.
constexpr std::array<uint32_t, 3> kSteps = {128, 2048, 100000};
constexpr uint32_t kMaxHeapKib = 1024;
constexpr int64_t kStepsPerUnit = 8, kCodeBytesPerUnit = 2;  // of PatternWork

PCRE2_SPTR text_of(std::string_view s) { return reinterpret_cast<PCRE2_SPTR>(s.data()); }

using Limits = std::array<pcre2_match_context*, kSteps.size()>;
Limits make_limits() {
  Limits out{};
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = pcre2_match_context_create(nullptr);
    if (!out[i]) continue;
    pcre2_set_match_limit(out[i], kSteps[i]);
    pcre2_set_heap_limit(out[i], kMaxHeapKib);
  }
  return out;
}

Status too_much_together() {
  return bad_data("the names and patterns that choose modules take too much work together");
}

}  // namespace

struct NamePattern::Code {
  std::string text;
  pcre2_code* code = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

Result<NamePattern> NamePattern::compile(std::string_view pattern, PatternWork& work) {
  if (pattern.size() > kMaxPattern)
    return bad_data("a pattern of {} bytes; the limit is {}", pattern.size(), kMaxPattern);
  if (!work.take(1 + static_cast<int64_t>(pattern.size()))) return too_much_together();
  auto code = std::make_shared<Code>();
  code->text = pattern;
  int error = 0;
  size_t at = 0;
  code->code =
      pcre2_compile(text_of(pattern), pattern.size(), PCRE2_ANCHORED, &error, &at, nullptr);
  if (!code->code) return bad_data("'{}' is no regular expression (at byte {})", pattern, at);
  // Repeats are written out: the code of a short pattern may be long.
  size_t size = 0;
  pcre2_pattern_info(code->code, PCRE2_INFO_SIZE, &size);
  if (!work.take(static_cast<int64_t>(size) / kCodeBytesPerUnit)) return too_much_together();
  NamePattern out;
  out.code_ = std::move(code);
  return out;
}

Result<bool> NamePattern::matches(std::string_view name, PatternWork& work) const {
  static const Limits limits = make_limits();
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  if (!data) return exhausted("no memory for a match");
  int found = PCRE2_ERROR_MATCHLIMIT;
  for (size_t i = 0; i < kSteps.size() && found == PCRE2_ERROR_MATCHLIMIT; ++i) {
    if (!limits[i]) return exhausted("no memory for a match");
    if (!work.take(kSteps[i] / kStepsPerUnit)) return too_much_together();
    found = pcre2_match(code_->code, text_of(name), name.size(), 0, 0, data.get(), limits[i]);
  }
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

Result<ModuleMatcher> ModuleMatcher::parse(std::string_view entry,
                                           std::shared_ptr<PatternWork> work) {
  ModuleMatcher m;
  if (entry.starts_with("re:")) {
    PF_ASSIGN(NamePattern pattern, NamePattern::compile(entry.substr(3), *work));
    m.pattern_ = std::make_shared<const NamePattern>(std::move(pattern));
  } else {
    m.name_ = entry;
  }
  m.work_ = std::move(work);
  return m;
}

Result<bool> ModuleMatcher::matches(std::string_view module) const {
  if (pattern_) return pattern_->matches(module, *work_);
  if (!work_->take(1)) return too_much_together();
  return names_part_of(name_, module);
}

}  // namespace pagefold
