#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define ONIG_ESCAPE_UCHAR_COLLISION
#include <oniguruma.h>

#include <mutex>

#include "text/utf8.h"

namespace pagefold {
namespace {

constexpr size_t kMaxPattern = 64 << 10;
constexpr uint32_t kMatchLimit = 50'000'000;  // backtracking steps of one match attempt
constexpr std::string_view kMongolianVowelSeparator = "\xE1\xA0\x8E";

// What a thread needs to match; freed when it ends.
struct PcreScratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 1 << 20, nullptr);
  PcreScratch() {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~PcreScratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

// "{L}", "{^Lu}": a general category by its one or two letters.
bool names_category(std::string_view rest) {
  if (!rest.starts_with('{')) return false;
  rest.remove_prefix(rest.starts_with("{^") ? 2 : 1);
  const size_t length = rest.find('}');
  return length == 1 || length == 2;
}

// Constructs PCRE2 accepts with another meaning than Oniguruma's.
bool needs_oniguruma(std::string_view pattern) {
  int depth = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      // \h is a hex digit and \K, \R, \X, \y, \Y, \G, \g, \k, \O, \N, \Z differ or need care.
      if (std::string_view("hHKRXyYGgkONZ").find(escaped) != std::string_view::npos) return true;
      // Categories mean the same; a script's name means its extensions too in PCRE2.
      if ((escaped == 'p' || escaped == 'P') && !names_category(pattern.substr(i + 1))) return true;
    } else if (c == '[') {
      ++depth;
    } else if (c == ']') {
      if (depth > 0) --depth;
    } else if (depth > 0 && c == '&' && i + 1 < pattern.size() && pattern[i + 1] == '&') {
      return true;
    } else if (depth == 0 && c == '(' && pattern.substr(i).starts_with("(?")) {
      const std::string_view rest = pattern.substr(i + 2);
      // (?~...) absent, (?m) is dot-all in Ruby, (?<name>..) and conditionals: leave to Oniguruma.
      if (!rest.starts_with("i:") && !rest.starts_with(":") && !rest.starts_with("=") &&
          !rest.starts_with("!") && !rest.starts_with("<=") && !rest.starts_with("<!") &&
          !rest.starts_with(">") && !rest.starts_with("i)")) {
        return true;
      }
    }
    // A class inside a class is a union in Oniguruma, a literal '[' in PCRE2.
    if (c == '[' && depth > 1) return true;
  }
  return false;
}

std::once_flag onig_once;

}  // namespace

struct Regex::Impl {
  std::string pattern;
  pcre2_code* pcre = nullptr;
  OnigRegex onig = nullptr;
  std::string onig_error;

  ~Impl() {
    if (pcre != nullptr) pcre2_code_free(pcre);
    if (onig != nullptr) onig_free(onig);
  }

  void compile_onig() {
    std::call_once(onig_once, [] {
      OnigEncoding use[] = {ONIG_ENCODING_UTF8};
      onig_initialize(use, 1);
    });
    const auto* begin = reinterpret_cast<const OnigUChar*>(pattern.data());
    OnigErrorInfo info;
    const int rc = onig_new(&onig, begin, begin + pattern.size(), ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &info);
    if (rc != ONIG_NORMAL) {
      OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
      onig_error_code_to_str(message, rc, &info);
      onig_error = reinterpret_cast<const char*>(message);
      onig = nullptr;
    }
  }

  void compile_pcre() {
    int error = 0;
    size_t offset = 0;
    // MULTILINE and NEWLINE_LF: Ruby's ^ and $ always work by line.
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 100);
    pcre = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                         &offset, context);
    pcre2_compile_context_free(context);
    if (pcre != nullptr) pcre2_jit_compile(pcre, PCRE2_JIT_COMPLETE);
  }

  void find_pcre(std::string_view text, std::vector<TextSpan>& matches) const {
    thread_local PcreScratch scratch;
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (size_t at = 0; at < text.size();) {
      const int rc = pcre2_match(pcre, subject, text.size(), at, PCRE2_NO_UTF_CHECK, scratch.data,
                                 scratch.context);
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT && onig != nullptr) return find_onig(text, at, matches);
      if (rc < 0) return;
      const size_t* found = pcre2_get_ovector_pointer(scratch.data);
      if (found[1] > found[0]) {
        matches.push_back({found[0], found[1]});
        at = found[1];
      } else if (found[0] < text.size()) {
        at = found[0] + utf8_length(static_cast<unsigned char>(text[found[0]]));
      } else {
        return;
      }
    }
  }

  void find_onig(std::string_view text, size_t at, std::vector<TextSpan>& matches) const {
    const auto* begin = reinterpret_cast<const OnigUChar*>(text.data());
    const auto* end = begin + text.size();
    OnigRegion* region = onig_region_new();
    OnigMatchParam* param = onig_new_match_param();
    onig_initialize_match_param(param);
    onig_set_retry_limit_in_match_of_match_param(param, kMatchLimit);
    while (at < text.size()) {
      const int rc = onig_search_with_param(onig, begin, end, begin + at, end, region,
                                            ONIG_OPTION_NONE, param);
      if (rc < 0) break;
      const auto from = static_cast<size_t>(region->beg[0]);
      const auto to = static_cast<size_t>(region->end[0]);
      if (to > from) {
        matches.push_back({from, to});
        at = to;
      } else if (from < text.size()) {
        at = from + utf8_length(static_cast<unsigned char>(text[from]));
      } else {
        break;
      }
    }
    onig_free_match_param(param);
    onig_region_free(region, 1);
  }
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::~Regex() = default;

Result<std::shared_ptr<const Regex>> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) return bad_data("a pattern of {} bytes", pattern.size());
  if (!is_valid_utf8(pattern)) return bad_data("a pattern that is not UTF-8");
  auto impl = std::make_unique<Impl>();
  impl->pattern = pattern;
  if (!needs_oniguruma(pattern)) impl->compile_pcre();
  impl->compile_onig();
  // Oniguruma decides what a pattern may be, since its meaning is the reference.
  if (impl->onig == nullptr) {
    return bad_data("the pattern \"{}\" does not compile: {}", pattern.substr(0, 200),
                    impl->onig_error);
  }
  return std::shared_ptr<const Regex>(new Regex(std::move(impl)));
}

std::string Regex::escape(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\^$.|?*+()[]{}&-#/").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

void Regex::find_all(std::string_view text, std::vector<TextSpan>& matches) const {
  const bool other = text.find(kMongolianVowelSeparator) != std::string_view::npos;
  if (impl_->pcre != nullptr && !other) {
    impl_->find_pcre(text, matches);
  } else {
    impl_->find_onig(text, 0, matches);
  }
}

bool Regex::uses_pcre() const { return impl_->pcre != nullptr; }

}  // namespace pagefold
