// R-KV and Quest against their worked cases, and reference variants of the others.
#include <limits>

#include "kv/policies/rkv_math.h"
#include "kv/selectors/quest.h"
#include "kv/support/cases.h"
#include "kv/window_scores.h"

namespace pagefold {
namespace {

using namespace testing;  // NOLINT

// The backend's part for R-KV, from the case's q and k.
KeyFn rkv_backend(const CaseInput& in) {
  return [&in](const KeyScoreQuery& q, int, int head, const int32_t* pos, int64_t n,
               const ScoredKeys& out) {
    std::vector<float> keys;
    const auto all = in.keys(static_cast<size_t>(head));
    for (int64_t i = 0; i < n; ++i)
      keys.insert(keys.end(), &all[8 * static_cast<size_t>(pos[i])],
                  &all[8 * static_cast<size_t>(pos[i])] + 8);
    rkv_similarity(keys.data(), n, 8, q.threshold, false, out.similarity);
    for (int w = 0; w < q.window; ++w) {
      for (int64_t i = 0; i < n; ++i) {
        double best = -INFINITY;
        for (int g = 0; g < in.group; ++g) {
          best = std::max(
              best, in.logit(static_cast<size_t>(head * in.group + g),
                             q.next_position - q.window + w, static_cast<size_t>(head), pos[i]));
        }
        out.logits[w * out.stride + i] = static_cast<float>(best);
      }
    }
  };
}

TEST(RkvMath, SoftmaxOverItsWholeRange) {
  for (const size_t n : {1u, 2u, 5u, 1003u}) {
    std::vector<float> x(n), out(n);
    double sum = 0;
    for (size_t i = 0; i < n; ++i) x[i] = 30 - 0.0865f * static_cast<float>(i * 7 % n);
    for (const float v : x) sum += std::exp(double{v});
    rkv_redundancy(x.data(), nullptr, static_cast<int64_t>(n), out.data());
    for (size_t i = 0; i < n; ++i)
      ASSERT_NEAR(out[i] * sum / std::exp(double{x[i]}), 1.0, 5e-7) << n << " " << x[i];
  }
  const float far[] = {0, -200, -1e30f};
  float out[3];
  rkv_redundancy(far, nullptr, 3, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 0.0f);
}

// Hidden slots have no share, whatever lies there, and the others what they have without them.
TEST(RkvMath, HiddenSlotsHaveNoShare) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  for (const size_t n : {1u, 4u, 7u, 600u}) {
    std::vector<float> x(2 * n), hidden(2 * n, 0.0f), shown, all(2 * n), part(n);
    for (size_t i = 0; i < 2 * n; ++i) {
      x[i] = static_cast<float>(i * 7 % 13) - 3;
      if (i % 2 == 0) shown.push_back(x[i]);
      if (i % 2 == 1) hidden[i] = kHidden, x[i] = 1e30f;
    }
    rkv_redundancy(x.data(), hidden.data(), static_cast<int64_t>(2 * n), all.data());
    rkv_redundancy(shown.data(), nullptr, static_cast<int64_t>(n), part.data());
    for (size_t i = 0; i < 2 * n; ++i) {
      const float want = i % 2 == 0 ? part[i / 2] : 0.0f;
      ASSERT_NEAR(all[i], want, 3e-7f * want) << n << " " << i;
    }
    rkv_importance(x.data(), 0, 3, hidden.data(), static_cast<int64_t>(2 * n), all.data());
    for (size_t i = 0; i < 2 * n; ++i) {
      const float want = i % 2 == 0 ? part[i / 2] : 0.0f;
      ASSERT_NEAR(all[i], want, 1e-6f * want) << n << " " << i;
    }
  }
}

TEST(RkvCase, SimilarityImportanceAndRedundancy) {
  const Json file = load_case("rkv");
  const CaseInput in(file);
  const Json& want = file["intermediate"];
  for (size_t h = 0; h < 2; ++h) {
    std::vector<float> similarity(24), redundancy(24), importance(20), pooled(20), logits;
    rkv_similarity(in.keys(h).data(), 24, 8, 0.5f, false, similarity.data());
    expect_near(similarity, want["mean_similarity"][h]);
    rkv_redundancy(similarity.data(), nullptr, 24, redundancy.data());
    expect_near(redundancy, want["redundancy_softmax"][h]);
    for (int w = 20; w < 24; ++w) {
      for (int i = 0; i < 20; ++i) {
        logits.push_back(
            static_cast<float>(std::max(in.logit(2 * h, w, h, i), in.logit(2 * h + 1, w, h, i))));
      }
    }
    rkv_importance(logits.data(), 20, 4, nullptr, 20, importance.data());
    pool_scores(importance.data(), 20, 7, Pool::max, pooled.data());
    expect_near(pooled, want["importance_repo"][h]);
  }
}

TEST(RkvCase, KeptSetsOfEveryLambda) {
  const Json file = load_case("rkv");
  const CaseInput in(file);
  int normative = 0;
  for (const Json& one : file["cases"]) {
    const Json& p = one["params"];
    if (p.contains("guard")) continue;
    const KvWords words = {{"policy", "rkv"},
                           {"budget", "12"},
                           {"window", "4"},
                           {"lambda", std::to_string(p["lambda"].get<double>())}};
    World world(in.model(), 256);
    Compactor compactor(world.model);
    Life life(world, compactor, plan_of(world.model, words), 24, 1, in.rows(), rkv_backend(in));
    life.prompt(24, 9);
    for (int h = 0; h < 2; ++h) {
      EXPECT_EQ(life.positions(h), ints(one["expected"]["kept"][static_cast<size_t>(h)]))
          << one["name"];
    }
    normative += one["name"] == "lambda_0.1" ? 1 : 0;
  }
  EXPECT_EQ(normative, 1);
}

TEST(RkvCase, FinalScores) {
  const Json file = load_case("rkv");
  const CaseInput in(file);
  const KvModel m = in.model();
  for (const Json& one : file["cases"]) {
    const Json& p = one["params"];
    if (p.contains("guard")) continue;
    const KvPlan plan = plan_of(m, {{"policy", "rkv"},
                                    {"window", "4"},
                                    {"lambda", std::to_string(p["lambda"].get<double>())}});
    for (int h = 0; h < 2; ++h) {
      std::vector<float> logits(4 * 24), similarity(24), out(24);
      std::vector<int32_t> positions(24);
      std::iota(positions.begin(), positions.end(), 0);
      const ScoredKeys keys{logits.data(), 24, similarity.data()};
      KeyScoreQuery q;
      q.window = 4;
      q.next_position = 24;
      q.threshold = 0.5f;
      rkv_backend(in)(q, 0, h, positions.data(), 24, keys);
      SlotSignals s;
      s.n = 24;
      s.positions = positions.data();
      s.keys = &keys;
      plan.policy->scores({plan.params, 0, h, 2, 24, 20}, s, out.data());
      expect_near(out, one["expected"]["final_score"][static_cast<size_t>(h)]);
    }
  }
}

TEST(RkvCase, GuardedVariantIsAReference) {
  const Json file = load_case("rkv");
  const CaseInput in(file);
  const Json& one = file["cases"][4];
  ASSERT_TRUE(one["params"].contains("guard"));
  for (size_t h = 0; h < 2; ++h) {
    std::vector<float> similarity(24), redundancy(24);
    rkv_similarity(in.keys(h).data(), 24, 8, 0.5f, true, similarity.data());
    rkv_redundancy(similarity.data(), nullptr, 24, redundancy.data());
    expect_near(redundancy, one["expected"]["redundancy"][h]);
  }
}

TEST(QuestCase, BoundsAndPages) {
  const Json file = load_case("quest");
  const CaseInput in(file);
  ASSERT_EQ(file["cases"].size(), 2u);
  for (const Json& one : file["cases"]) {
    const int page = one["params"]["page_size"];
    const int64_t budget = one["params"]["page_budget"];
    const int64_t pages = (24 + page - 1) / page;
    const Json& want = one["expected"];
    for (size_t h = 0; h < 2; ++h) {
      std::vector<float> low(static_cast<size_t>(pages) * 8), high(low.size());
      const auto keys = in.keys(h);
      for (int t = 0; t < 24; ++t) {
        const auto p = static_cast<size_t>(t / page) * 8;
        quest_add_key(&keys[static_cast<size_t>(t) * 8], 8, t % page == 0, &low[p], &high[p]);
      }
      for (size_t p = 0; p < static_cast<size_t>(pages); ++p) {
        expect_near(
            {low.begin() + static_cast<long>(p * 8), low.begin() + static_cast<long>(p * 8 + 8)},
            want["page_min"][h][p]);
        expect_near(
            {high.begin() + static_cast<long>(p * 8), high.begin() + static_cast<long>(p * 8 + 8)},
            want["page_max"][h][p]);
      }
      std::vector<float> q, bounds(static_cast<size_t>(pages));
      for (size_t g = 0; g < 2; ++g) {
        std::vector<float> one_q;
        for (const double x : in.q[2 * h + g][23]) one_q.push_back(static_cast<float>(x));
        quest_bounds(one_q.data(), 1, 8, low.data(), high.data(), pages, bounds.data());
        expect_near(bounds, want["score_per_q_head"][2 * h + g]);
        for (size_t p = 0; p < bounds.size(); ++p) {  // an upper bound of every key of the page
          EXPECT_GE(bounds[p] + 1e-4f, want["true_max_dot_per_q_head"][2 * h + g][p].get<float>());
        }
        std::vector<int32_t> chosen;
        quest_select(bounds.data(), pages, budget, chosen);
        EXPECT_EQ(chosen, ints(want["pages_per_q_head_last_page_forced"][2 * h + g]));
        q.insert(q.end(), one_q.begin(), one_q.end());
      }
      quest_bounds(q.data(), 2, 8, low.data(), high.data(), pages, bounds.data());
      expect_near(bounds, want["score_per_kv_head_group_max"][h]);
      std::vector<int32_t> chosen;
      quest_select(bounds.data(), pages, budget, chosen);
      EXPECT_EQ(chosen, ints(want["pages_per_kv_head_group_max_last_page_forced"][h]));
    }
  }
}

TEST(Quest, SelectsTheLastPageAndBreaksTiesDownwards) {
  std::vector<int32_t> out;
  const std::vector<float> same(6, 1.0f);
  quest_select(same.data(), 6, 3, out);
  EXPECT_EQ(out, (std::vector<int32_t>{0, 1, 5}));
  quest_select(same.data(), 6, 1, out);
  EXPECT_EQ(out, (std::vector<int32_t>{5}));
  quest_select(same.data(), 6, 9, out);
  EXPECT_EQ(out.size(), 6u);
  quest_select(same.data(), 0, 9, out);
  EXPECT_TRUE(out.empty());
}

// Reference values: variants that the engine does not run, through the same pure functions.

std::vector<float> probabilities(const CaseInput& in, size_t head, int64_t query, int64_t n) {
  std::vector<int32_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> p(all.size());
  in.rows()(0, static_cast<int>(head) / in.group, static_cast<int>(head) % in.group, query,
            all.data(), n, p.data());
  return p;
}

std::vector<int32_t> top(const std::vector<float>& scores, int64_t keep, size_t forced) {
  std::vector<uint8_t> flags(scores.size(), 0);
  std::fill(flags.end() - static_cast<long>(forced), flags.end(), kSlotProtected);
  std::vector<int32_t> scratch;
  std::vector<int32_t> out;
  pick_top(scores.data(), flags.data(), static_cast<int64_t>(scores.size()), keep, scratch, out);
  return out;
}

TEST(Reference, H2oPerQueryHeadAndMax) {
  const Json file = load_case("h2o");
  const CaseInput in(file);
  const Json& want = file["cases"][0]["expected"];
  std::vector<std::vector<float>> mass(4, std::vector<float>(24, 0.0f));
  for (size_t h = 0; h < 4; ++h) {
    std::vector<float> lse;
    for (int64_t q = 0; q < 24; ++q) {
      const auto p = probabilities(in, h, q, q + 1);
      for (size_t i = 0; i < p.size(); ++i) mass[h][i] += p[i];
      double sum = 0;
      for (int64_t i = 0; i <= q; ++i) sum += std::exp(in.logit(h, q, h / 2, i));
      lse.push_back(static_cast<float>(std::log(sum)));
    }
    expect_near(lse, want["lse_per_q_head"][h]);
    expect_near(mass[h], want["score_per_q_head"][h]);
    EXPECT_EQ(top(mass[h], 12, 6), ints(want["kept_per_q_head"][h]));
  }
  for (size_t kv = 0; kv < 2; ++kv) {
    std::vector<float> most(24);
    for (size_t i = 0; i < 24; ++i) most[i] = std::max(mass[2 * kv][i], mass[2 * kv + 1][i]);
    expect_near(most, want["score_per_kv_head_max"][kv]);
    EXPECT_EQ(top(most, 12, 6), ints(want["kept_per_kv_head_max"][kv]));
  }
}

TEST(Reference, TovaVariants) {
  const Json file = load_case("tova");
  const CaseInput in(file);
  const Json& want = file["cases"][0]["expected"];
  std::vector<float> mean(24, 0.0f), most(24, 0.0f);
  std::vector<std::vector<float>> kv(2, std::vector<float>(24, 0.0f));
  for (size_t h = 0; h < 4; ++h) {
    const auto p = probabilities(in, h, 23, 24);
    for (size_t i = 0; i < 24; ++i) {
      mean[i] += p[i] / 4;
      most[i] = std::max(most[i], p[i]);
      kv[h / 2][i] += p[i] / 2;
    }
  }
  expect_near(mean, want["score_mean_all_q_heads"]);
  expect_near(most, want["score_max_all_q_heads"]);
  EXPECT_EQ(top(most, 10, 0), ints(want["kept_layer_max"]));
  for (size_t h = 0; h < 2; ++h) {
    expect_near(kv[h], want["score_mean_per_kv_head"][h]);
    EXPECT_EQ(top(kv[h], 10, 0), ints(want["kept_per_kv_head_mean"][h]));
  }
  EXPECT_EQ(top(mean, 10, 1), ints(want["kept_layer_mean_last_token_protected"]));
}

TEST(Reference, SnapKvVariants) {
  const Json file = load_case("snapkv");
  const CaseInput in(file);
  for (const Json& one : file["cases"]) {
    const Json& want = one["expected"];
    const int kernel = one["params"]["kernel"];
    const Pool pool = one["params"]["pool"] == "avg" ? Pool::avg : Pool::max;
    std::vector<std::vector<float>> sum(4, std::vector<float>(20, 0.0f));
    for (size_t h = 0; h < 4; ++h) {
      for (int64_t q = 20; q < 24; ++q) {
        const auto p = probabilities(in, h, q, q + 1);
        for (size_t i = 0; i < 20; ++i) sum[h][i] += p[i];
      }
      expect_near(sum[h], want["window_sum_per_q_head"][h]);
      std::vector<float> pooled(20);
      pool_scores(sum[h].data(), 20, kernel, pool, pooled.data());
      expect_near(pooled, want["score_per_q_head"][h]);
      auto kept = top(pooled, 8, 0);
      for (int i = 20; i < 24; ++i) kept.push_back(i);
      EXPECT_EQ(kept, ints(want["kept_per_q_head_official"][h]));
    }
    for (size_t kv = 0; kv < 2; ++kv) {
      std::vector<float> most(20), pooled(20);
      for (size_t i = 0; i < 20; ++i) most[i] = std::max(sum[2 * kv][i], sum[2 * kv + 1][i]);
      pool_scores(most.data(), 20, kernel, pool, pooled.data());
      expect_near(pooled, want["score_per_kv_head_max_then_pool"][kv]);
    }
  }
}

TEST(Pooling, FollowsPositionsWhenSlotsAreScrambled) {
  const std::vector<float> scores = {1, 5, 2, 0, 3};
  const std::vector<int32_t> positions = {40, 0, 7, 9, 20};  // by position: 5 2 0 3 1
  std::vector<float> out(5);
  pool_by_position(scores.data(), positions.data(), 5, 3, Pool::max, out.data());
  EXPECT_EQ(out, (std::vector<float>{3, 5, 5, 3, 3}));
  pool_by_position(scores.data(), positions.data(), 5, 3, Pool::avg, out.data());
  EXPECT_FLOAT_EQ(out[1], 7.0f / 3);
}

}  // namespace
}  // namespace pagefold
