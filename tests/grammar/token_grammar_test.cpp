#include "grammar/token_grammar.h"

#include <random>

#include "grammar_tools.h"

namespace pagefold::grammar::test {
namespace {

// Walks at random along the masks. At every step each token's bit is checked against the text that
// would result; what comes out at the end must match.
void walk(const std::shared_ptr<TokenGrammar>& g, uint32_t seed) {
  std::mt19937 dice(seed);
  GrammarMatcher matcher(g);
  const Vocabulary& v = g->vocabulary();
  std::string text;
  for (int step = 0; step < 60; ++step) {
    const TokenMask* mask = matcher.allowed();
    ASSERT_NE(mask, nullptr);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < v.size(); ++id) {
      const bool expected = v.is_end(id)
                                ? g->matches(text)
                                : !v.bytes(id).empty() && g->matches_prefix(text + v.bytes(id));
      ASSERT_EQ(mask_allows(*mask, id), expected) << text << " + " << id;
      if (expected) allowed.push_back(id);
    }
    ASSERT_FALSE(allowed.empty()) << text;
    const int32_t pick = allowed[dice() % allowed.size()];
    ASSERT_TRUE(matcher.accept(pick));
    if (pick == kEnd) {
      EXPECT_TRUE(g->matches(text));
      EXPECT_TRUE(matcher.finished());
      return;
    }
    text += v.bytes(pick);
    if (matcher.finished()) {
      EXPECT_TRUE(g->matches(text)) << text;
      return;
    }
  }
}

TEST(TokenGrammar, MasksAreWhatTheTextsSay) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    walk(of_regex("(abc|[a-c]{2,5})(,(abc|é+|😀))*"), seed);
    walk(of_schema("{}"), seed);
    walk(of_schema(R"({"type":"object","properties":{"abc":{"type":"string","maxLength":4},
        "n":{"type":"integer","minimum":-12,"maximum":123}},"required":["abc"],
        "additionalProperties":{"type":"boolean"}})"),
         seed);
    walk(of_schema(R"({"type":"array","items":{"enum":["abc","ab",true,123,null]},"maxItems":4})"),
         seed);
  }
}

TEST(TokenGrammar, EndsOnlyWhereATextEnds) {
  GrammarMatcher m(of_regex("ab|abc"));
  EXPECT_FALSE(m.accept(kEnd));
  EXPECT_TRUE(m.accept('a'));
  EXPECT_FALSE(m.accept('c'));
  EXPECT_FALSE(m.finished());
  EXPECT_TRUE(m.accept('b'));
  EXPECT_FALSE(m.finished());
  EXPECT_TRUE(mask_allows(*m.allowed(), kEnd));
  EXPECT_TRUE(mask_allows(*m.allowed(), 'c'));
  EXPECT_FALSE(mask_allows(*m.allowed(), kEnd + 1));
  EXPECT_FALSE(m.accept(kEnd + 1));
  EXPECT_FALSE(m.accept(-1));
  EXPECT_FALSE(m.accept(1 << 20));
  EXPECT_TRUE(m.accept('c'));
  EXPECT_TRUE(m.finished());
}

// Two answers that share a grammar do not feel each other, and one that outgrows its tables goes
// on after they are made anew.
TEST(TokenGrammar, LongAnswersOutliveTheTables) {
  Grammar source;
  const ExprId whole = *regex_expr(source, "(x{0,4000}y)*");
  const auto g = *TokenGrammar::make(source, source.rule_of(whole), vocabulary(), 20'000);
  GrammarMatcher a(g), b(g);
  ASSERT_TRUE(b.accept('x'));
  for (int i = 0; i < 3999; ++i) ASSERT_TRUE(a.accept('x'));
  ASSERT_TRUE(a.accept('x'));
  EXPECT_FALSE(a.accept('x'));
  EXPECT_TRUE(a.accept('y'));
  EXPECT_TRUE(b.accept('y'));
}

TEST(TokenGrammar, TextUpToAMark) {
  Grammar g;
  const ExprId whole = g.seq({g.until("aab"), g.literal("!")});
  const auto made = TokenGrammar::make(g, g.rule_of(whole), vocabulary());
  ASSERT_TRUE(made.ok());
  expect_texts(**made,
               {"aab!", "aaab!", "xaaxaab!",
                "\xC3\xA9"
                "aab!",
                "abaaab!"},
               {"aab", "aabaab!", "ab!", "!"});
}

TEST(TokenGrammar, ChoicesShareTheirBeginnings) {
  Grammar g;
  std::vector<std::string> texts;
  for (int i = 0; i < 5000; ++i) texts.push_back("item " + std::to_string(i));
  const auto made = TokenGrammar::make(g, g.rule_of(g.choice(texts)), vocabulary());
  ASSERT_TRUE(made.ok());
  for (const std::string& text : texts) ASSERT_TRUE((*made)->matches(text));
  EXPECT_FALSE((*made)->matches("item 5000"));
  EXPECT_FALSE((*made)->matches("item "));
}

}  // namespace
}  // namespace pagefold::grammar::test
