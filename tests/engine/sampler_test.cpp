#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "base/random.h"

namespace pagefold {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

// The definition, with a full sort and doubles. `logits` after penalties and bias.
int32_t naive_draw(const std::vector<float>& logits, const SamplingOptions& o, double u) {
  const auto n = logits.size();
  std::vector<double> p(n);
  float best = -kInf;
  for (const float x : logits) best = std::max(best, x);
  for (size_t i = 0; i < n; ++i) {
    const float z = (logits[i] - best) * (1.0f / o.temperature);
    p[i] = z > -87.0f ? std::exp(z) : 0.0f;
    if (p[i] < static_cast<double>(o.min_p)) p[i] = 0;
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  if (o.top_k > 0) {
    for (size_t i = static_cast<size_t>(o.top_k); i < n; ++i) p[order[i]] = 0;
  }
  if (o.top_p < 1) {
    double total = 0, sum = 0;
    for (const double x : p) total += x;
    for (const size_t i : order) {
      const bool drop = sum >= static_cast<double>(o.top_p) * total;
      sum += p[i];
      if (drop) p[i] = 0;
    }
  }
  double total = 0, sum = 0;
  for (const double x : p) total += x;
  int32_t last = -1;
  for (size_t i = 0; i < n; ++i) {
    if (p[i] == 0) continue;
    last = static_cast<int32_t>(i);
    sum += p[i];
    if (sum > u * total) break;
  }
  return last;
}

int32_t pick(const SamplingOptions& o, const std::vector<float>& logits, uint64_t seed = 0,
             std::vector<int32_t> tokens = {0}, int64_t n_prompt = 1,
             std::vector<int32_t> eos = {}) {
  Sampler sampler(static_cast<int64_t>(logits.size()));
  return sampler.sample({o, tokens, n_prompt, eos, seed}, logits.data());
}

SamplingOptions greedy() {
  SamplingOptions o;
  o.temperature = 0;
  return o;
}

TEST(Sampler, GreedyTakesTheFirstOfEquals) {
  EXPECT_EQ(pick(greedy(), {1, 3, 2, 3}), 1);
  EXPECT_EQ(pick(greedy(), {-5, -kInf, -4}), 2);
}

// D20: temperatures near 0 are greedy, and nothing overflows just above the limit.
TEST(Sampler, TinyTemperatures) {
  const std::vector<float> logits = {1e30f, 3e38f, -3e38f, 2e38f};
  for (const float t : {0.0f, 1e-5f, 1e-30f, 1e-45f, 9.99e-5f, 1e-4f, 1e-3f}) {
    SamplingOptions o;
    o.temperature = t;
    for (uint64_t seed = 0; seed < 50; ++seed) EXPECT_EQ(pick(o, logits, seed), 1) << t;
  }
}

TEST(Sampler, NotANumberIsNeverChosen) {
  SamplingOptions o;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const int32_t got = pick(o, {kNan, 1, kNan, 2, -kInf}, seed);
    EXPECT_TRUE(got == 1 || got == 3);
  }
  EXPECT_EQ(pick(greedy(), {kNan, 1, kNan, 2}), 3);
  EXPECT_EQ(pick(greedy(), {kNan, kNan}), -1);
  EXPECT_EQ(pick(o, {-kInf, -kInf}), -1);
  EXPECT_EQ(pick(o, {0, kInf, 5}), 1);
}

TEST(Sampler, EqualsTheNaiveDefinition) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0, 3);
  for (int round = 0; round < 3000; ++round) {
    const size_t n = 1 + rng() % 300;
    std::vector<float> logits(n);
    for (float& x : logits) x = normal(rng);
    if (round % 3 == 0) {
      for (float& x : logits) x = std::round(x);  // many ties
    }
    SamplingOptions o;
    o.temperature = 0.1f + static_cast<float>(rng() % 30) / 10.0f;
    if (rng() % 2 == 0) o.top_k = static_cast<int32_t>(rng() % (n + 20));
    if (rng() % 2 == 0) o.top_p = static_cast<float>(1 + rng() % 100) / 100.0f;
    if (rng() % 3 == 0) o.min_p = static_cast<float>(rng() % 100) / 100.0f;
    const uint64_t seed = rng();
    EXPECT_EQ(pick(o, logits, seed), naive_draw(logits, o, uniform01(seed, 0)))
        << "n " << n << " T " << o.temperature << " k " << o.top_k << " p " << o.top_p << " min "
        << o.min_p << " seed " << seed;
  }
}

// Chi-square of 20,000 draws against the softmax; 99.9 % quantile of 7 degrees of freedom: 24.3.
TEST(Sampler, DrawsTheDistribution) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f, 1.5f, -2, 0};
  double total = 0;
  for (const float x : logits) total += std::exp(static_cast<double>(x));
  std::vector<int> counts(8, 0);
  Sampler sampler(8);
  const SamplingOptions o;
  std::vector<int32_t> tokens = {0};
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[static_cast<size_t>(sampler.sample({o, tokens, 1, {}, 99}, logits.data()))];
    tokens.push_back(0);  // the draw's index is the number of generated tokens
  }
  double chi2 = 0;
  for (size_t i = 0; i < 8; ++i) {
    const double expected = kDraws * std::exp(static_cast<double>(logits[i])) / total;
    chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi2, 24.3);
}

// By hand: prompt 0 1, output 2 2 3.
TEST(Sampler, Penalties) {
  const std::vector<int32_t> tokens = {0, 1, 2, 2, 3};
  SamplingOptions o = greedy();
  o.repetition_penalty = 2;  // 0: 4 -> 2, 1: -1 -> -2, 2: 5 -> 2.5, 3: 4.4 -> 2.2
  EXPECT_EQ(pick(o, {4, -1, 5, 4.4f, 2.4f}, 0, tokens, 2), 2);
  EXPECT_EQ(pick(o, {4, -1, 5, 4.4f, 2.6f}, 0, tokens, 2), 4);
  EXPECT_EQ(pick(o, {-9, -1, -9, -9, -1.9f}, 0, tokens, 2), 4);  // -1 became -2
  o = greedy();
  o.frequency_penalty = 1;  // 2: 5 - 2, 3: 4 - 1, prompt tokens untouched
  EXPECT_EQ(pick(o, {3.1f, 0, 5, 4, 0}, 0, tokens, 2), 0);
  EXPECT_EQ(pick(o, {2.9f, 0, 5.1f, 4, 0}, 0, tokens, 2), 2);
  o = greedy();
  o.presence_penalty = 1;  // 2: 5 - 1, 3: 4.5 - 1
  EXPECT_EQ(pick(o, {3.9f, 0, 5, 4.5f, 0}, 0, tokens, 2), 2);
  EXPECT_EQ(pick(o, {4.1f, 0, 5, 4.5f, 0}, 0, tokens, 2), 0);
}

TEST(Sampler, PenaltiesLeaveNothingBehind) {
  Sampler sampler(5);
  SamplingOptions o = greedy();
  o.frequency_penalty = 2;
  const std::vector<float> logits = {0, 1, 4, 2, 0};
  const std::vector<int32_t> many = {0, 2, 2, 2, 3}, none = {0};
  EXPECT_EQ(sampler.sample({o, many, 1, {}, 0}, logits.data()), 1);
  EXPECT_EQ(sampler.sample({o, none, 1, {}, 0}, logits.data()), 2);
}

TEST(Sampler, BiasIsAddedAndClamped) {
  SamplingOptions o = greedy();
  o.logit_bias = {{0, 2.0f}, {0, 1.5f}};
  EXPECT_EQ(pick(o, {0, 3.4f}), 0);
  o.logit_bias = {{0, kInf}};
  EXPECT_EQ(pick(o, {0, 99}), 0);
  EXPECT_EQ(pick(o, {0, 101}), 1);
  o.logit_bias = {{1, -1e30f}};
  EXPECT_EQ(pick(o, {0, 99}), 0);
}

TEST(Sampler, MinTokensBansEndTokens) {
  SamplingOptions o = greedy();
  o.min_tokens = 2;
  o.stop_token_ids = {3};
  const std::vector<float> logits = {0, 1, 8, 9};
  EXPECT_EQ(pick(o, logits, 0, {0}, 1, {2, 77}), 1);
  EXPECT_EQ(pick(o, logits, 0, {0, 1}, 1, {2, 77}), 1);
  EXPECT_EQ(pick(o, logits, 0, {0, 1, 1}, 1, {2, 77}), 3);
  EXPECT_EQ(pick(o, {5}, 0, {0}, 1, {0}), 0) << "everything is banned: the model's own choice";
}

TEST(Sampler, OnlyAllowedTokensCome) {
  SamplingOptions o = greedy();
  o.allowed_token_ids = {1, 3};
  EXPECT_EQ(pick(o, {9, 1, 8, 2}), 3);
  EXPECT_EQ(pick(o, {9, 1, 8, -kInf}), 1);
  EXPECT_EQ(pick(o, {9, -kInf, 8, -kInf}), 1) << "the first of them, though the model gives none";
  o.min_tokens = 1;
  EXPECT_EQ(pick(o, {9, 1, 8, 2}, 0, {0}, 1, {3}), 1);
  o.allowed_token_ids = {3};
  EXPECT_EQ(pick(o, {9, 1, 8, 2}, 0, {0}, 1, {3}), 3) << "the ban of the end token gives way";
  o = {};
  o.allowed_token_ids = {0, 2};
  std::set<int32_t> seen;
  for (uint64_t seed = 0; seed < 50; ++seed) seen.insert(pick(o, {1, 1, 1, 1}, seed));
  EXPECT_EQ(seen, (std::set<int32_t>{0, 2}));
}

TEST(Sampler, BadWordsAreNotCompleted) {
  SamplingOptions o = greedy();
  const std::vector<float> logits = {0, 1, 8, 9};
  o.bad_words = {{3}};
  EXPECT_EQ(pick(o, logits), 2);
  o.bad_words = {{3}, {1, 2}};
  EXPECT_EQ(pick(o, logits, 0, {0, 1}, 1), 1) << "behind 1";
  EXPECT_EQ(pick(o, logits, 0, {0, 1}, 2), 2) << "a prompt's tokens begin no word";
  EXPECT_EQ(pick(o, logits, 0, {0, 1, 0}, 1), 2);
  o.bad_words = {{1, 1, 3}};
  EXPECT_EQ(pick(o, logits, 0, {0, 1}, 1), 3);
  EXPECT_EQ(pick(o, logits, 0, {0, 1, 1}, 1), 2);
  o.bad_words = {{0}, {1}, {2}, {3}};
  EXPECT_EQ(pick(o, logits), 3) << "nothing else could come";
  o.allowed_token_ids = {1};
  EXPECT_EQ(pick(o, logits), 1);
}

TEST(Logprobs, OfTheRawDistribution) {
  const std::vector<float> logits = {1, 3, -kInf, 3, kNan, 2};
  const double log_z = std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0));
  std::vector<TokenLogprob> out;
  token_logprobs(logits, 0, 3, out);
  ASSERT_EQ(out.size(), 4u);
  const int32_t ids[] = {0, 1, 3, 5};
  const double values[] = {1, 3, 3, 2};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(out[i].token, ids[i]);
    EXPECT_NEAR(out[i].logprob, values[i] - log_z, 1e-6);
  }
  token_logprobs(logits, 2, 0, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].logprob, -kInf);
}

TEST(Logprobs, BestOnesEqualASort) {
  std::mt19937 rng(8);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(1 + rng() % 100);
    for (float& x : logits) x = static_cast<float>(rng() % 20);
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    const int n = static_cast<int>(rng() % 21);
    std::vector<TokenLogprob> out;
    token_logprobs(logits, 0, n, out);
    ASSERT_EQ(out.size(), 1 + std::min<size_t>(static_cast<size_t>(n), logits.size()));
    for (size_t i = 1; i < out.size(); ++i) ASSERT_EQ(out[i].token, order[i - 1]);
  }
}

}  // namespace
}  // namespace pagefold
