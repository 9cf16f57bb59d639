// Answers bound to a grammar, beside others that are not.
#include <gtest/gtest.h>

#include "engine_test_util.h"
#include "grammar/regex.h"
#include "grammar/token_grammar.h"

namespace pagefold::testing {
namespace {

constexpr int32_t kEos = 63;

// Ids 0 ... 61 are 'A' ... '~', 62 is special, 63 ends.
std::shared_ptr<TokenGrammar> grammar_of(std::string_view pattern, int64_t vocab = 64) {
  std::vector<std::string> tokens(static_cast<size_t>(vocab));
  for (int i = 0; i < 62 && i < vocab; ++i) {
    tokens[static_cast<size_t>(i)] = std::string(1, static_cast<char>('A' + i));
  }
  grammar::Grammar g;
  const grammar::ExprId whole = *grammar::regex_expr(g, pattern);
  return *TokenGrammar::make(
      g, g.rule_of(whole),
      std::make_shared<const grammar::Vocabulary>(std::move(tokens), std::vector<int32_t>{kEos}));
}

std::string text_of(const Answer& a) {
  std::string text;
  for (const int32_t id : a.tokens) {
    if (id != kEos) text += static_cast<char>('A' + id);
  }
  return text;
}

Request bound(std::string_view pattern, int64_t max_tokens, uint64_t seed, float temperature) {
  Request r = greedy(prompt_of(9, seed), max_tokens);
  r.eos_token_ids = {kEos};
  r.grammar = grammar_of(pattern);
  r.sampling.temperature = temperature;
  r.sampling.seed = seed;
  return r;
}

Answer run(EngineCore& engine, Request r) {
  auto generation = engine.submit(std::move(r));
  EXPECT_TRUE(generation.ok()) << generation.status();
  return drain(**generation);
}

TEST(EngineGrammar, AnswersMatchAndNeighboursStayTheSame) {
  FakeModel model;
  const auto engine = start_engine(model, small_config());
  const Answer alone = run(*engine, greedy(prompt_of(20, 7), 30));
  std::vector<std::shared_ptr<Generation>> all;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    all.push_back(*engine->submit(bound("(AB|BA|C){3,8}D?", 40, seed, seed % 2 ? 1.5f : 0.0f)));
  }
  const auto neighbour = *engine->submit(greedy(prompt_of(20, 7), 30));
  EXPECT_EQ(drain(*neighbour).tokens, alone.tokens);
  const auto g = grammar_of("(AB|BA|C){3,8}D?");
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Answer together = drain(*all[seed]);
    EXPECT_EQ(together.result.reason, FinishReason::stop);
    EXPECT_TRUE(g->matches(text_of(together))) << text_of(together);
    const Answer again = run(*engine, bound("(AB|BA|C){3,8}D?", 40, seed, seed % 2 ? 1.5f : 0.0f));
    EXPECT_EQ(again.tokens, together.tokens);
  }
}

TEST(EngineGrammar, Endings) {
  FakeModel model;
  const auto engine = start_engine(model, small_config());
  // Nothing can follow: the answer is over without an end token, with ignore_eos too.
  Request r = bound("ABC", 40, 1, 0);
  r.sampling.ignore_eos = true;
  Answer a = run(*engine, std::move(r));
  EXPECT_EQ(text_of(a), "ABC");
  EXPECT_EQ(a.tokens.size(), 3u);
  EXPECT_EQ(a.result.reason, FinishReason::stop);
  a = run(*engine, bound("A{50}", 10, 1, 0));
  EXPECT_EQ(a.result.reason, FinishReason::length);
  EXPECT_EQ(text_of(a), std::string(10, 'A'));
  // min_tokens keeps the end away where something else can come.
  r = bound("A{1,9}", 40, 1, 0);
  r.sampling.min_tokens = 6;
  a = run(*engine, std::move(r));
  EXPECT_GE(text_of(a).size(), 6u);
  EXPECT_EQ(a.result.reason, FinishReason::stop);
  // A bias cannot force a token that does not fit.
  r = bound("[A-C]{4}", 40, 1, 0);
  r.sampling.logit_bias = {{10, 100.0f}, {1, 100.0f}};
  EXPECT_EQ(text_of(run(*engine, std::move(r))), "BBBB");
  // The vocabulary cannot write what must come.
  a = run(*engine, bound("AB\xC3\xA9", 40, 1, 0));
  EXPECT_EQ(a.result.reason, FinishReason::error);
}

TEST(EngineGrammar, RefusesAForeignVocabulary) {
  FakeModel model;
  const auto engine = start_engine(model, small_config());
  Request r = greedy(prompt_of(4, 1), 4);
  r.grammar = grammar_of("A", 40);
  EXPECT_EQ(engine->submit(std::move(r)).status().code(), absl::StatusCode::kInvalidArgument);
}

// A pool for two of three sequences: pausing and computing again changes nothing.
TEST(EngineGrammar, SurvivesPauses) {
  FakeModel model;
  const auto roomy = start_engine(model, small_config());
  std::vector<Answer> wanted;
  for (uint64_t i = 0; i < 3; ++i) wanted.push_back(run(*roomy, bound("[A-Z]{80}", 90, i, 1)));
  FakeModel small_model;
  const auto tight = start_engine(small_model, small_config(64));
  std::vector<std::shared_ptr<Generation>> all;
  for (uint64_t i = 0; i < 3; ++i) all.push_back(*tight->submit(bound("[A-Z]{80}", 90, i, 1)));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(drain(*all[i]).tokens, wanted[i].tokens);
}

}  // namespace
}  // namespace pagefold::testing
