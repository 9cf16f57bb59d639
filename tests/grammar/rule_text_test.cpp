#include "grammar/rule_text.h"

#include "grammar_tools.h"

namespace pagefold::grammar::test {
namespace {

Result<std::shared_ptr<TokenGrammar>> try_rules(std::string_view text) {
  Grammar g;
  PF_ASSIGN(const ExprId whole, rules_expr(g, text));
  return TokenGrammar::make(g, g.rule_of(whole), vocabulary());
}

TEST(RuleText, ArithmeticWithBrackets) {
  const auto g = try_rules(R"~(
# sums and products
root  ::= expr "=" | "none"
expr  ::= term ([-+*/] term)*
term  ::= number | "(" expr ")"
number ::= [0-9]{1,3} ("." [0-9]+)?
)~");
  ASSERT_TRUE(g.ok()) << g.status().message();
  expect_texts(**g, {"1=", "1+22*(3-4.5)=", "((7))=", "none"},
               {"", "1", "1+=", "(1=", "1234=", "1.="});
}

TEST(RuleText, TermsAndEscapes) {
  const auto g = try_rules("a-b: \"x\\n\\\"\\u00e9\" 'y'? . c{2,}\nc ::= ()|[^\\]a]");
  ASSERT_TRUE(g.ok()) << g.status().message();
  expect_texts(**g, {"x\n\"\xC3\xA9yz", "x\n\"\xC3\xA9z", "x\n\"\xC3\xA9\xF0\x9F\x98\x80zzz"},
               {"x\n\"\xC3\xA9", "x", "x\n\"\xC3\xA9z]"});
}

TEST(RuleText, RightRecursionNeedsNoDepth) {
  const auto g = try_rules("root ::= \"a\" root | \"b\"");
  ASSERT_TRUE(g.ok());
  EXPECT_TRUE((*g)->matches(std::string(5000, 'a') + "b"));
}

TEST(RuleText, RefusesByLine) {
  for (const auto& [text, word] :
       std::vector<std::pair<std::string, std::string>>{{"", "empty"},
                                                        {"root ::= x", "not defined"},
                                                        {"root = \"a\"", "line 1"},
                                                        {"root ::= \"a\"\nroot ::= \"b\"", "twice"},
                                                        {"root ::= (\"a\"\n", "closing"},
                                                        {"root ::= \"a", "quote"},
                                                        {"root ::= [a", "closing"},
                                                        {"root ::= root \"a\" | \"b\"", "itself"},
                                                        {"root ::= \"a\" root", "no text"},
                                                        {"root ::= \"a\"{3,1}", "{n,m}"},
                                                        {"root ::= \"\\q\"", "escape"},
                                                        {"root ::= \"a\" ) \"b\"", "line 1"}}) {
    const auto made = try_rules(text);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_NE(made.status().message().find(word), std::string::npos)
        << text << ": " << made.status().message();
  }
}

TEST(RuleText, AmbiguousOnesAreFollowedOrRefused) {
  const auto g = try_rules("root ::= a a a a a a a a\na ::= (\"x\" | \"x\" \"x\" | \"\")*");
  if (g.ok()) EXPECT_TRUE((*g)->matches("xxxxxx"));
  std::string deep = "root ::= ";
  for (int i = 0; i < 50000; ++i) deep += "(";
  EXPECT_FALSE(try_rules(deep).ok());
}

}  // namespace
}  // namespace pagefold::grammar::test
