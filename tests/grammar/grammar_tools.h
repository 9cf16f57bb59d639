// A small vocabulary and short ways from a source to a grammar over it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/token_grammar.h"

namespace pagefold::grammar::test {

inline constexpr int32_t kEnd = 256;

// Ids 0..255 are bytes, 256 ends an answer, 257 is special, then pieces of several bytes.
inline std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto made = [] {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
    tokens.insert(tokens.end(), {"", ""});
    for (const char* piece :
         {"{\"",  "\":",  " \"",   "\",",  "},",  "}}",       "[[",
          "]]",   "true", "false", "null", "123", " {",       ", \"",
          "\n  ", "\\n",  "abc",   "ab",   "ca",  "\xC3\xA9", "\xF0\x9F\x98\x80",
          "abc",  "00",   "-1",    ".5",   "    "}) {
      tokens.emplace_back(piece);
    }
    return std::make_shared<const Vocabulary>(std::move(tokens), std::vector<int32_t>{kEnd});
  }();
  return made;
}

inline Result<std::shared_ptr<TokenGrammar>> try_regex(std::string_view pattern) {
  Grammar g;
  PF_ASSIGN(const ExprId whole, regex_expr(g, pattern));
  return TokenGrammar::make(g, g.rule_of(whole), vocabulary());
}
inline Result<std::shared_ptr<TokenGrammar>> try_schema(const Json& schema) {
  Grammar g;
  PF_ASSIGN(const ExprId whole, schema_expr(g, schema));
  return TokenGrammar::make(g, g.rule_of(whole), vocabulary());
}
inline std::shared_ptr<TokenGrammar> of_regex(std::string_view pattern) {
  auto made = try_regex(pattern);
  EXPECT_TRUE(made.ok()) << pattern << ": " << made.status().message();
  return *made;
}
inline std::shared_ptr<TokenGrammar> of_schema(std::string_view schema) {
  auto made = try_schema(Json::parse(schema));
  EXPECT_TRUE(made.ok()) << schema << ": " << made.status().message();
  return *made;
}

inline void expect_texts(TokenGrammar& g, const std::vector<std::string>& good,
                         const std::vector<std::string>& bad) {
  for (const std::string& text : good) EXPECT_TRUE(g.matches(text)) << text;
  for (const std::string& text : bad) EXPECT_FALSE(g.matches(text)) << text;
}

}  // namespace pagefold::grammar::test
