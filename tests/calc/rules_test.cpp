#include "calc/rules.h"

#include <gtest/gtest.h>

namespace pagefold::calc {
namespace {

CacheTypes bf16() {
  CacheTypes t;
  t.k = t.v = *parse_kv_type("auto", EngineRules::pagefold);
  return t;
}

TEST(CalcRules, SumsRememberThatTheyOverflowed) {
  const Checked big(uint64_t{1} << 62);
  EXPECT_TRUE(big.ok());
  EXPECT_FALSE((big + big).ok());
  EXPECT_FALSE((big * 4).ok());
  EXPECT_FALSE((big * 4 * 0 + Checked(1)).ok());
  EXPECT_FALSE(Checked(int64_t{-1}).ok());
  EXPECT_FALSE(Checked(uint64_t{1} << 63).ok());
  EXPECT_EQ((Checked(3) * 4 + Checked(5)).value(), 17u);
}

TEST(CalcRules, TheLargestThatFits) {
  for (const int64_t n : {0, 1, 2, 63, 64, 1000, 4095}) {
    EXPECT_EQ(most_that_fits(4095, [n](int64_t x) { return x <= n; }), n);
  }
  EXPECT_EQ(most_that_fits(100, [](int64_t) { return true; }), 100);
}

TEST(CalcRules, VllmPaysTheLargestLayerForAll) {
  const std::vector<LayerGroup> groups = {windowed_layers(LayerKind::sliding, 5, 4, 64, 64, 128),
                                          full_layers(2, 1, 128, 128)};
  const std::vector<int64_t> lengths = {100, 33};
  RuleOptions o;
  const auto a = vllm_allocation(groups, bf16(), lengths, o);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a->token_bytes, 7u * 4 * 2 * 64 * 2);
  EXPECT_EQ(a->bytes, a->token_bytes * 16 * (7 + 3));
  o.shared_prefix = 32;  // two pages
  EXPECT_EQ(vllm_allocation(groups, bf16(), lengths, o)->bytes, a->token_bytes * 16 * 8);
}

TEST(CalcRules, LlamaCppPadsItsContextAndBoundsItsWindows) {
  CacheTypes t;
  t.k = *parse_kv_type("q8_0", EngineRules::llama_cpp);
  t.v = *parse_kv_type("q4_0", EngineRules::llama_cpp);
  const std::vector<LayerGroup> groups = {windowed_layers(LayerKind::sliding, 3, 2, 64, 64, 100),
                                          full_layers(1, 2, 64, 64)};
  const std::vector<int64_t> lengths = {1000, 1001};
  const auto a = llama_cpp_allocation(groups, t, lengths, {});
  ASSERT_TRUE(a.ok());
  constexpr uint64_t kCell = 2 * (68 + 36);
  // 2001 -> 2016 cells; windows: 2 x 100 + 512 = 712 -> 736.
  EXPECT_EQ(a->bytes, kCell * (2016 + 3 * 736));
}

TEST(CalcRules, HeadsOfARank) {
  const LayerGroup g = full_layers(1, 10, 128, 128);
  EXPECT_EQ(on_one_rank(g, 1).kv_heads, 10);
  EXPECT_EQ(on_one_rank(g, 4).kv_heads, 3);
  EXPECT_EQ(on_one_rank(g, 16).kv_heads, 1);
}

}  // namespace
}  // namespace pagefold::calc
