// The normative and reference values of tests/kv/cases.
#include "kv/support/cases.h"

namespace pagefold {
namespace {

using namespace testing;  // NOLINT

// Attention policies run as a life of a sequence: kept sets are what is left in the cache.

TEST(H2oCase, MassesAndKeptSetsOfThePrompt) {
  const Json file = load_case("h2o");
  const CaseInput in(file);
  const Json& want = file["cases"][0]["expected"];
  CaseLife c(in, {{"policy", "h2o"}, {"budget", "24"}}, 24);
  c.life.prompt(24, 7);
  for (int h = 0; h < 2; ++h) {
    float* mass = c.life.compression.signals().mass(h);
    expect_near({mass, mass + 24}, want["score_per_kv_head_mean"][static_cast<size_t>(h)]);
    EXPECT_NEAR(std::accumulate(mass, mass + 24, 0.0), 24.0, 1e-4);  // each row adds 1
  }
  CaseLife cut(in, {{"policy", "h2o"}, {"budget", "12"}}, 24);
  cut.life.prompt(24, 5);
  EXPECT_EQ(cut.kept(), sets(want["kept_per_kv_head_mean"]));
}

TEST(H2oCase, DecodeTrace) {
  const Json file = load_case("h2o");
  const CaseInput in(file);
  const Json& want = file["cases"][1]["expected"];
  CaseLife c(in, {{"policy", "h2o"}, {"budget", "9"}, {"recent", "4"}}, 16);
  c.life.prompt(16);
  EXPECT_EQ(c.kept(), sets(want["after_prefill"]["kept"]));
  ASSERT_EQ(want["steps"].size(), 8u);
  for (const Json& step : want["steps"]) {
    c.life.step(1);
    EXPECT_EQ(c.kept(), sets(step["kept"])) << "token " << step["token"];
    for (int h = 0; h < 2; ++h) {  // scores are listed by token; ours lie by slot
      std::vector<std::pair<int32_t, float>> by_token;
      for (int s = 0; s < 9; ++s) {
        by_token.emplace_back(c.life.compression.signals().positions(h)[s],
                              c.life.compression.signals().mass(h)[s]);
      }
      std::sort(by_token.begin(), by_token.end());
      std::vector<float> scores;
      for (const auto& [token, score] : by_token) scores.push_back(score);
      expect_near(scores, step["scores"][static_cast<size_t>(h)]);
    }
  }
}

TEST(TovaCase, OneShotAndDecodeTrace) {
  const Json file = load_case("tova");
  const CaseInput in(file);
  const Json& one = file["cases"][0]["expected"];
  CaseLife c(in, {{"policy", "tova"}, {"budget", "10"}}, 24);
  c.life.prompt(24, 6);
  EXPECT_EQ(c.kept()[0], ints(one["kept_layer_mean_official"]));
  EXPECT_EQ(c.kept()[1], c.kept()[0]);

  const Json& want = file["cases"][1]["expected"];
  CaseLife d(in, {{"policy", "tova"}, {"budget", "8"}}, 12);
  d.life.prompt(12);
  EXPECT_EQ(d.kept()[0], ints(want["after_prefill"]["kept"]));
  ASSERT_EQ(want["steps"].size(), 12u);
  for (const Json& step : want["steps"]) {
    d.life.step(1);
    EXPECT_EQ(d.kept()[0], ints(step["kept"])) << "token " << step["token"];
    EXPECT_EQ(d.kept()[1], d.kept()[0]);
  }
}

TEST(SnapKvCase, GroupMeanThenPool) {
  const Json file = load_case("snapkv");
  const CaseInput in(file);
  ASSERT_EQ(file["cases"].size(), 3u);
  for (const Json& one : file["cases"]) {
    const std::string pool = one["params"]["pool"].get<std::string>() == "avg" ? "avg" : "max";
    const std::string kernel = std::to_string(one["params"]["kernel"].get<int>());
    const KvOptions words = {{"policy", "snapkv"},
                             {"budget", "12"},
                             {"window", "4"},
                             {"kernel", kernel},
                             {"pool", pool}};
    CaseLife c(in, words, 24);
    c.life.prompt(24, 22);  // the window straddles two chunks
    EXPECT_EQ(c.kept(), sets(one["expected"]["kept_per_kv_head_mean_then_pool"]));

    // Scores, through the policy on the masses of an uncut prompt.
    CaseLife full(in, {{"policy", "snapkv"}, {"budget", "24"}, {"window", "4"}}, 24);
    full.life.prompt(24, 22);
    const KvPlan plan = plan_of(full.world.model, words);
    for (int h = 0; h < 2; ++h) {
      std::vector<float> score(24);
      plan.policy->scores({plan.params, 0, h, 2, 24, 20}, full.life.compression.signals().view(h),
                          score.data());
      expect_near(score,
                  one["expected"]["score_per_kv_head_mean_then_pool"][static_cast<size_t>(h)]);
    }
  }
}

TEST(ScissorhandsCase, CounterOneShot) {
  const Json file = load_case("scissorhands");
  const CaseInput in(file);
  const Json& want = file["cases"][0]["expected"];
  CaseLife c(in, {{"policy", "scissorhands"}, {"budget", "12"}, {"window", "6"}, {"recent", "3"}},
             24);
  // 24 slots against 12: drop 12.
  c.life.prompt(24, 20);
  EXPECT_EQ(c.kept(), sets(want["kept"]));

  CaseLife full(in, {{"policy", "scissorhands"}, {"budget", "24"}, {"window", "6"}}, 24);
  full.life.prompt(24);
  for (int h = 0; h < 2; ++h) {
    const HistoryArrays& history = *full.life.compression.signals().view(h).history;
    std::vector<int> low(24, 0);
    std::vector<float> mass(24, 0.0f);
    for (size_t s = 0; s < 24; ++s) {
      for (int w = 0; w < history.words; ++w) {
        low[s] += std::popcount(history.bits[w * history.stride + static_cast<int64_t>(s)]);
      }
      for (int g = 0; g < history.segments; ++g) {
        mass[s] += history.mass[g * history.stride + static_cast<int64_t>(s)];
      }
    }
    EXPECT_EQ(low, want["low_count"][static_cast<size_t>(h)].get<std::vector<int>>());
    expect_near(mass, want["window_mass"][static_cast<size_t>(h)]);
  }
}

TEST(ScissorhandsCase, CounterDecode) {
  const Json file = load_case("scissorhands");
  const CaseInput in(file);
  const Json& want = file["cases"][1]["expected"];
  CaseLife c(in,
             {{"policy", "scissorhands"},
              {"budget", "12"},
              {"window", "6"},
              {"recent", "3"},
              {"drop", "4"}},
             10);
  c.life.prompt(10);
  ASSERT_EQ(want["steps"].size(), 14u);
  for (const Json& step : want["steps"]) {
    c.life.step(1);
    EXPECT_EQ(c.kept(), sets(step["kept"])) << "token " << step["token"];
  }
}

TEST(AdaKvCase, SafeguardHasTheExactTotal) {
  const Json file = load_case("adakv");
  const CaseInput in(file);
  const Json& one = file["cases"][2];
  ASSERT_EQ(one["name"], "kvpress_safeguard_variant");
  CaseLife c(in,
             {{"policy", "adakv"},
              {"budget", "12"},
              {"window", "4"},
              {"kernel", "5"},
              {"pool", "avg"},
              {"alpha", "0.2"}},
             24);
  c.life.prompt(24);
  EXPECT_EQ(c.kept(), sets(one["expected"]["kept"]));
  EXPECT_EQ(c.kept()[0].size() + c.kept()[1].size(), 24u);
}

TEST(PyramidCase, ExactTotals) {
  const Json file = load_case("pyramidkv");
  int checked = 0;
  for (const Json& one : file["cases"]) {
    const Json& p = one["params"];
    const int64_t window = p["window"], base = p["capacity"].get<int64_t>() - window;
    const Json& exact = one["expected_exact_total_variant"];
    if (exact.is_null()) continue;
    const auto line = pyramid_line(base, p["beta"].get<double>(), p["layers"].get<int>(),
                                   p["q_len"].get<int64_t>() - window);
    EXPECT_EQ(line, exact.get<std::vector<int64_t>>()) << p.dump();
    EXPECT_EQ(std::accumulate(line.begin(), line.end(), int64_t{0}), base * p["layers"].get<int>());
    ++checked;
  }
  EXPECT_GT(checked, 10);
  // Nothing to compress: what is there is kept.
  const KvModel m = small_model(8, 8, 2);
  std::vector<int64_t> live(16, 64), zero(16, 0), least(16, 8), keep(16);
  BudgetInput in{m, {}, 128, 8, 64, live.data(), zero.data(), least.data(), nullptr};
  find_budget("pyramid")->counts(in, keep.data());
  EXPECT_EQ(keep, live);
}

TEST(PyramidCase, TotalsPerLayerThroughTheBudget) {
  const Json file = load_case("pyramidkv");
  for (const Json& one : file["cases"]) {
    const Json& p = one["params"];
    const Json& exact = one["expected_exact_total_variant"];
    if (exact.is_null()) continue;
    const int layers = p["layers"];
    const int64_t window = p["window"], n = p["q_len"];
    const KvModel m = small_model(layers, 2, 1);
    const auto tables = static_cast<size_t>(layers);
    std::vector<int64_t> live(tables, n), zero(tables, 0), least(tables, window), keep(tables);
    BudgetParams params;
    params.beta = p["beta"].get<double>();
    BudgetInput in{m,
                   params,
                   p["capacity"].get<int64_t>(),
                   window,
                   n,
                   live.data(),
                   zero.data(),
                   least.data(),
                   nullptr};
    find_budget("pyramid")->counts(in, keep.data());
    for (size_t l = 0; l < tables; ++l) EXPECT_EQ(keep[l], window + exact[l].get<int64_t>());
  }
}

}  // namespace
}  // namespace pagefold
