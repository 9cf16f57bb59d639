// The worked cases of tests/kv/cases that attention itself must give: masses, log-sum-exp, history
// counts, page bounds and choices. 4 query heads, 2 KV heads, 8 dims, 24 tokens.
#include <bit>

#include "backend/attention_rig.h"
#include "base/file.h"
#include "base/json.h"

namespace pagefold {
namespace {

constexpr int kTokens = 24, kHeads = 4, kKvHeads = 2, kDim = 8;

Json load_case(const std::string& name) {
  auto text =
      read_file(std::string(PAGEFOLD_SOURCE_DIR) + "/tests/kv/cases/" + name + ".json", 1 << 20);
  EXPECT_TRUE(text.ok());
  auto json = parse_json(text.ok() ? *text : "{}");
  EXPECT_TRUE(json.ok());
  return json.ok() ? *json : Json::object();
}

Rig rig_of(const Json& file) {
  Rig rig({.n_heads = kHeads,
           .n_kv_heads = kKvHeads,
           .head_dim = kDim,
           .dtype = DType::f32,
           .bounds = true,
           .max_slots = 32});
  for (int token = 0; token < kTokens; ++token) {
    for (int d = 0; d < kDim; ++d) {
      for (int h = 0; h < kHeads; ++h)
        rig.query(token, h)[d] = file["input"]["q"][h][token][d].get<float>();
      for (int h = 0; h < kKvHeads; ++h)
        rig.key(token, h)[d] = file["input"]["k"][h][token][d].get<float>();
    }
  }
  return rig;
}

// Masses of rows [first, 24), in two steps and a decode row. history_window: their history instead,
// its masses in one sum.
Observed observe_from(Rig& rig, int first, int history_window = 0) {
  Observed seen(rig.options(), history_window, 1, kTokens);
  for (const int rows : {15, 8, 1}) {
    const int at = static_cast<int>(rig.len());
    const int begin = std::clamp(first - at, 0, rows);
    const SeqSignals s = seen.rows(begin, rows - begin, false, at);
    rig.step(rows, &s);
  }
  return seen;
}

void expect_near(double got, const Json& want) {
  const double w = want.get<double>();
  EXPECT_NEAR(got, w, 1e-5 + 1e-4 * std::abs(w));
}

TEST(Cases, H2oMasses) {
  const Json file = load_case("h2o");
  Rig rig = rig_of(file);
  const Observed seen = observe_from(rig, 0);
  const Json& want = file["cases"][0]["expected"]["score_per_kv_head_mean"];
  for (size_t h = 0; h < kKvHeads; ++h)
    for (size_t s = 0; s < kTokens; ++s) expect_near(seen.mass[h][s], want[h][s]);
}

TEST(Cases, H2oLogSumExp) {
  const Json file = load_case("h2o");
  Rig rig = rig_of(file);
  const Json& want = file["cases"][0]["expected"]["lse_per_q_head"];
  const kernels::Kernels& k = *kernels::select_kernels("auto").value();
  const kernels::KvLayout layout{DType::f32, DType::f32, kDim, 16};
  alignas(64) static std::byte blocks[8192];
  ASSERT_LE(2 * layout.block_bytes(), sizeof blocks);
  const uint32_t ids[] = {1, 0};
  for (int h = 0; h < kHeads; ++h) {
    const float* key = rig.key(0, h / 2);
    k.kv_append(layout, {blocks, ids, 0, kTokens, key, key, rig.ld(), rig.ld()});
    for (int row = 0; row < kTokens; ++row) {
      alignas(64) float q[64], o[kDim], m, l;
      k.attention_prepare_q(layout, rig.query(row, h), kDim, 1, 1 / std::sqrt(8.0f), q);
      const int16_t lo = 0, hi = static_cast<int16_t>(row + 1);
      kernels::AttentionChunkArgs a;
      a.base = blocks;
      a.blocks = ids;
      a.slots = kTokens;
      a.q = q;
      a.rows = 1;
      a.lo = &lo;
      a.hi = &hi;
      a.out = {&m, &l, o};
      k.attention_chunk(layout, a);
      expect_near(m + std::log(l), want[static_cast<size_t>(h)][static_cast<size_t>(row)]);
    }
  }
}

TEST(Cases, TovaLastRow) {
  const Json file = load_case("tova");
  Rig rig = rig_of(file);
  const Observed seen = observe_from(rig, kTokens - 1);
  const Json& expected = file["cases"][0]["expected"];
  for (size_t s = 0; s < kTokens; ++s) {
    expect_near((seen.mass[0][s] + seen.mass[1][s]) / 2, expected["score_mean_all_q_heads"][s]);
    for (size_t h = 0; h < kKvHeads; ++h)
      expect_near(seen.mass[h][s], expected["score_mean_per_kv_head"][h][s]);
  }
}

TEST(Cases, SnapKvWindow) {
  const Json file = load_case("snapkv");
  const Json& c = file["cases"][0];
  const int window = c["params"]["window"].get<int>();
  Rig rig = rig_of(file);
  const Observed seen = observe_from(rig, kTokens - window);
  const Json& want = c["expected"]["window_sum_per_q_head"];
  for (size_t h = 0; h < kKvHeads; ++h)
    for (size_t s = 0; s < want[0].size(); ++s)
      EXPECT_NEAR(seen.mass[h][s],
                  (want[2 * h][s].get<double>() + want[2 * h + 1][s].get<double>()) / 2, 1e-5);
}

TEST(Cases, ScissorhandsCounts) {
  const Json file = load_case("scissorhands");
  const Json& c = file["cases"][0];
  const int window = c["params"]["history_window"].get<int>();
  Rig rig = rig_of(file);
  const Observed seen = observe_from(rig, kTokens - window, window);
  for (size_t h = 0; h < kKvHeads; ++h) {
    for (size_t s = 0; s < kTokens; ++s) {
      EXPECT_EQ(std::popcount(seen.bits[h][s]), c["expected"]["low_count"][h][s].get<int>());
      expect_near(seen.mass[h][s], c["expected"]["window_mass"][h][s]);
    }
  }
}

TEST(Cases, QuestScoresAndChoices) {
  const Json file = load_case("quest");
  Rig rig = rig_of(file);
  int count = 0;
  const kernels::Kernels* const* list = kernels::available_kernels(&count);
  for (const Json& c : file["cases"]) {
    const Json& expected = c["expected"];
    const auto row = c["params"]["query"].get<int64_t>();
    for (size_t h = 0; h < kKvHeads; ++h) {
      const Json &lo = expected["page_min"][h], &hi = expected["page_max"][h];
      const size_t pages = lo.size();
      std::vector<float> bounds, q;
      std::vector<uint32_t> ids;
      for (size_t p = 0; p < pages; ++p) {
        ids.push_back(static_cast<uint32_t>(p));
        for (size_t d = 0; d < kDim; ++d) bounds.push_back(lo[p][d].get<float>());
        for (size_t d = 0; d < kDim; ++d) bounds.push_back(hi[p][d].get<float>());
      }
      for (int g = 0; g < 2; ++g) {
        const float* from = rig.query(row, static_cast<int>(h) * 2 + g);
        q.insert(q.end(), from, from + kDim);
      }
      for (int i = 0; i < count; ++i) {
        std::vector<float> scores(pages);
        list[i]->page_scores(bounds.data(), ids.data(), static_cast<int>(pages), q.data(), 2, kDim,
                             scores.data());
        for (size_t p = 0; p < pages; ++p)
          expect_near(scores[p], expected["score_per_kv_head_group_max"][h][p]);
        std::vector<int32_t> chosen;
        cpu::select_pages(scores, c["params"]["page_budget"].get<int64_t>(), 0, chosen);
        EXPECT_EQ(chosen, expected["pages_per_kv_head_group_max_last_page_forced"][h]
                              .get<std::vector<int32_t>>());
      }
    }
  }
}

}  // namespace
}  // namespace pagefold
