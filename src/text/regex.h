// Patterns of tokenizer files, with the meaning Oniguruma's Ruby syntax gives them (the engine of
// Hugging Face tokenizers). PCRE2's JIT runs them, Oniguruma itself where the two differ:
// - `&&` inside a class (an intersection there, two ampersands in PCRE2), classes inside classes,
//   \h, \Z, names of scripts (PCRE2 adds script extensions) and whatever PCRE2 rejects;
// - texts with U+180E, which PCRE2 counts as white space and Unicode does not.
// Both engines know Unicode 14: newer characters count as unassigned.
// Immutable and thread-safe: match data and JIT stacks belong to the threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagefold {

struct TextSpan {
  size_t begin, end;  // bytes
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

class Regex {
 public:
  // Patterns over 64 KiB are refused.
  static Result<std::shared_ptr<const Regex>> compile(std::string_view pattern);
  // A regex that matches this text and nothing else.
  static std::string escape(std::string_view literal);
  ~Regex();

  // Non-overlapping, non-empty matches within valid UTF-8, left to right. When an engine's work
  // limit is reached the rest of the text has no matches.
  void find_all(std::string_view text, std::vector<TextSpan>& matches) const;
  // The engine that is used for ordinary text; for tests.
  bool uses_pcre() const;

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefold
