// Grammars as people write them (GBNF, the notation of llama.cpp):
//
//   root ::= "yes" | "no" (" " reason)?     # a comment
//   reason ::= [a-z ]{1,40} "."
//
// Rules `name ::= ...` or `name: ...`; names of letters, digits, - and _; the first rule, or `root`
// where there is one, is the whole text. Terms: "text" with \n \t \r \" \\ \xHH \uHHHH, classes as
// in regular expressions, the dot (any character), names, ( ), and * + ? {n} {n,} {n,m}. A rule
// ends before the next `name ::=`.
#pragma once

#include <string_view>

#include "grammar/grammar.h"

namespace pagefold::grammar {

inline constexpr size_t kMaxRuleTextBytes = 256 << 10;

// Messages give the line; they never repeat the text.
Result<ExprId> rules_expr(Grammar& grammar, std::string_view text);

}  // namespace pagefold::grammar
