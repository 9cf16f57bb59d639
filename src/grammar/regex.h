// Regular expressions as grammars. Understood: characters and escapes (\n \t \r \f \v \0 \xHH
// \uHHHH \u{H...} and escaped punctuation), classes [...] and [^...] with ranges and \d \w \s \D \W
// \S (ASCII, as in JSON schema's dialect), the dot (no line end), groups (...) (?:...) (?<name>...)
// (?P<name>...), alternatives, * + ? {n} {n,} {n,m} with an optional lazy ?, and ^ $ at the ends of
// an alternative of the whole expression. Everything else is refused by name: references back,
// looking around, word boundaries, flags, possessive repeats, \p{...}.
#pragma once

#include <functional>
#include <string_view>

#include "grammar/grammar.h"

namespace pagefold::grammar {

struct RegexOptions {
  // How one character of a set is written in the text. Null: as UTF-8.
  std::function<ExprId(const CharSet&)> character;
  // Where ^ or $ is missing any characters may come before or after, as JSON schema has it. False:
  // the expression is the whole text.
  bool search = false;
};

inline constexpr size_t kMaxRegexBytes = 64 << 10;

// Messages give the byte where the fault is, never the expression.
Result<ExprId> regex_expr(Grammar& grammar, std::string_view pattern,
                          const RegexOptions& options = {});

}  // namespace pagefold::grammar
