#include <cmath>

#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "cache_fixture.h"
#include "kv/policies/rkv_math.h"

namespace pagefold {
namespace {

using test::CacheCase;
using test::CachedRows;

float rounded(DType t, float v) {
  if (t == DType::f16) return f16_to_f32(f32_to_f16(v));
  return t == DType::bf16 ? bf16_to_f32(f32_to_bf16(v)) : v;
}

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

TEST(CacheOps, ReadsTheKeysBack) {
  for (const DType type : kTypes) {
    for (const int block_size : {16, 48}) {
      CacheCase c;
      c.dtype = type;
      c.block_size = block_size;
      c.n_kv_heads = c.n_layers = 2;
      CachedRows rows(c);
      const auto views = rows.views(c.rows);
      for (int t = 0; t < 4; ++t) {
        std::vector<float> keys(static_cast<size_t>(c.rows * c.head_dim) + 1, 99.0f);
        rows.backend().read_keys(t / 2, t % 2, views[static_cast<size_t>(t)], c.rows, keys.data());
        for (int i = 0; i < c.rows * c.head_dim; ++i)
          ASSERT_EQ(keys[static_cast<size_t>(i)],
                    rounded(type, rows.key(t / 2, t % 2,
                                           0)[i / c.head_dim * rows.cols() + i % c.head_dim]));
        EXPECT_EQ(keys.back(), 99.0f);
      }
    }
  }
}

// All moves of a plan, with a shared block copied first, against a list of rows.
TEST(CacheOps, MovesSlotsOfEveryTable) {
  for (const DType type : kTypes) {
    CacheCase c;
    c.dtype = type;
    c.n_layers = 2, c.n_kv_heads = 2, c.n_heads = 4, c.rows = 77;
    for (const bool ordered : {true, false}) {
      CachedRows rows(c);
      auto views = rows.views(c.rows);
      std::mt19937 rng(3);
      MovePlan plan;
      std::vector<std::vector<int>> expected;
      for (int t = 0; t < 4; ++t) {
        std::vector<int> kept;
        for (int s = 0; s < c.rows; ++s)
          if (rng() % 3 != 0) kept.push_back(s);
        TableMoves m;
        m.layer = t / 2, m.head = t % 2;
        m.len_before = c.rows;
        m.len_after = static_cast<int64_t>(kept.size());
        std::vector<int> list = kept;
        if (!ordered) {  // hole filling
          std::vector<int> holes, tail;
          const int end = static_cast<int>(kept.size());
          for (int s = 0; s < end; ++s)
            if (!std::binary_search(kept.begin(), kept.end(), s)) holes.push_back(s);
          for (const int s : kept)
            if (s >= end) tail.push_back(s);
          list.resize(static_cast<size_t>(end));
          std::iota(list.begin(), list.end(), 0);
          for (size_t i = 0; i < holes.size(); ++i) list[static_cast<size_t>(holes[i])] = tail[i];
        }
        for (int s = 0; s < static_cast<int>(list.size()); ++s)
          if (list[static_cast<size_t>(s)] != s)
            m.moves.push_back({list[static_cast<size_t>(s)], s});
        if (t == 1) m.copies.push_back({2, rows.blocks(1)[2], rows.spare()[0]});
        plan.tables.push_back(m);
        expected.push_back(list);
      }
      rows.backend().move_slots(plan, views.data(), 2);
      rows.blocks(1)[2] = rows.spare()[0];
      views = rows.views(c.rows);
      for (int t = 0; t < 4; ++t) {
        const auto& list = expected[static_cast<size_t>(t)];
        const auto n = static_cast<int64_t>(list.size());
        std::vector<float> keys(static_cast<size_t>(n * c.head_dim));
        rows.backend().read_keys(t / 2, t % 2, views[static_cast<size_t>(t)], n, keys.data());
        for (size_t s = 0; s < list.size(); ++s) {
          for (int d = 0; d < c.head_dim; ++d)
            ASSERT_EQ(keys[s * static_cast<size_t>(c.head_dim) + static_cast<size_t>(d)],
                      rounded(type, rows.key(t / 2, t % 2, list[s])[d]))
                << "table " << t << " slot " << s << " dim " << d;
        }
      }
    }
  }
}

TEST(CacheOps, ScoresAllTablesAsOneByOne) {
  CacheCase c;
  c.n_layers = 3, c.n_kv_heads = 2, c.n_heads = 6, c.rows = 53;
  CachedRows rows(c);
  const auto views = rows.views(c.rows);
  constexpr int kBands = 8, kGroup = 3;
  std::mt19937 rng(8);
  std::normal_distribution<float> normal;
  std::vector<float> w[3];
  for (auto& v : w) {
    v.resize(static_cast<size_t>(3 * 6 * kBands));
    for (float& x : v) x = normal(rng);
  }
  KeyScoreQuery q;
  q.kind = KeyScore::coefficients;
  q.coefficients = {1, w[0].data(), w[1].data(), w[2].data(), kBands};
  const KeyTables keys{views.data(), 3, 6, 2, 0.25f, true};
  std::vector<float> out(6 * kGroup * 64, 5.0f);
  std::vector<ScoredKeys> scored(6);
  for (size_t t = 0; t < 6; ++t) scored[t] = {out.data() + t * kGroup * 64, 64, nullptr};
  scored[4].logits = nullptr;
  rows.backend().score_tables(q, keys, scored.data());
  for (size_t t = 0; t < 6; ++t) {
    std::vector<float> one(kGroup * 53);
    float* heads[kGroup];
    for (size_t g = 0; g < kGroup; ++g) heads[g] = one.data() + g * 53;
    const size_t at = (t / 2 * 6 + t % 2 * 3) * kBands;
    Backend::KeyCoefficients k{w[0].data() + at, w[1].data() + at, w[2].data() + at,
                               kGroup,           kBands,           true};
    rows.backend().score_keys(static_cast<int>(t / 2), static_cast<int>(t % 2), views[t], 53, k,
                              heads);
    for (size_t g = 0; g < kGroup; ++g) {
      for (size_t s = 0; s < 64; ++s) {
        const float got = out[(t * kGroup + g) * 64 + s];
        if (t == 4 || s >= 53) {
          ASSERT_EQ(got, 5.0f);
          continue;
        }
        ASSERT_EQ(got, heads[g][s]);
        double sum = 0;
        const float* k0 =
            rows.key(static_cast<int>(t / 2), static_cast<int>(t % 2), static_cast<int>(s));
        for (size_t f = 0; f < kBands; ++f) {
          const size_t i = at + g * kBands + f;
          sum += double{w[0][i]} * double{k0[f]} + double{w[1][i]} * double{k0[f + 8]} +
                 double{w[2][i]} * std::hypot(double{k0[f]}, double{k0[f + 8]});
        }
        ASSERT_NEAR(got, sum, 1e-4);
      }
    }
  }
}

// rkv.json: softmax of the similarity over all keys, and the window's mean softmax before pooling.
TEST(CacheOps, RedundancyOfTheCaseFile) {
  const auto text =
      read_file(std::string(PAGEFOLD_SOURCE_DIR) + "/tests/backend/rkv_keys.json", 1 << 20);
  ASSERT_TRUE(text.ok());
  const auto json = parse_json(*text);
  ASSERT_TRUE(json.ok());
  CacheCase c;
  c.n_heads = 4, c.n_kv_heads = 2, c.head_dim = 8, c.rows = 24;
  const auto keys = (*json)["keys"].get<std::vector<float>>();
  CachedRows rows(c, &keys);
  const auto views = rows.views(c.rows);
  KeyScoreQuery q;
  q.kind = KeyScore::redundancy;
  q.threshold = 0.5f;
  QueryRing ring;
  q.ring = &ring;
  std::vector<float> similarity(2 * 24), logits(24);
  std::vector<ScoredKeys> scored = {{logits.data(), 24, similarity.data()},
                                    {logits.data(), 24, similarity.data() + 24}};
  rows.backend().score_tables(q, {views.data(), 1, 4, 2, 1.0f, true}, scored.data());
  std::vector<float> redundancy(24), reference(24);
  for (int h = 0; h < 2; ++h) {
    rkv_redundancy(similarity.data() + h * 24, nullptr, 24, redundancy.data());
    rkv_similarity(keys.data() + h * 24 * 8, 24, 8, 0.5f, false, reference.data());
    for (size_t s = 0; s < 24; ++s) {
      EXPECT_NEAR(similarity[static_cast<size_t>(h) * 24 + s], reference[s], 1e-6);
      EXPECT_NEAR(redundancy[s], (*json)["redundancy"][static_cast<size_t>(h)][s].get<float>(),
                  1e-6);
    }
  }
}

// Many rows and every kind of row: hits near and far, and none at all.
TEST(CacheOps, RedundancyEqualsTheReferenceAtEveryThreshold) {
  CacheCase c;
  c.n_heads = 2, c.n_kv_heads = 2, c.head_dim = 8, c.rows = 333;
  CachedRows rows(c);
  auto views = rows.views(c.rows);
  std::vector<float> similarity(2 * 336), logits(336), reference(333), keys(333 * 8);
  std::vector<ScoredKeys> scored = {{logits.data(), 336, similarity.data()},
                                    {logits.data(), 336, similarity.data() + 336}};
  QueryRing ring;
  for (const float threshold : {-0.5f, 0.0f, 0.5f, 0.9f, 0.999f, 1.0f}) {
    KeyScoreQuery q;
    q.kind = KeyScore::redundancy;
    q.threshold = threshold;
    q.ring = &ring;
    rows.backend().score_tables(q, {views.data(), 1, 2, 2, 1.0f, true}, scored.data());
    for (int h = 0; h < 2; ++h) {
      for (int s = 0; s < c.rows; ++s) std::copy_n(rows.key(0, h, s), 8, keys.data() + s * 8);
      rkv_similarity(keys.data(), 333, 8, threshold, false, reference.data());
      for (size_t s = 0; s < 333; ++s) {
        ASSERT_NEAR(scored[static_cast<size_t>(h)].similarity[s], reference[s], 2e-6)
            << threshold << " " << s;
      }
    }
  }
}

// More slots than are summed in float32, a common direction as keys of a model have it, and lengths
// whose squares float32 does not hold.
TEST(CacheOps, RedundancyOfKeysOfEveryLength) {
  constexpr int kRows = 1111, kDim = 16;
  CacheCase c;
  c.n_heads = 1, c.n_kv_heads = 1, c.head_dim = kDim, c.rows = kRows;
  std::mt19937 rng(8);
  std::normal_distribution<float> normal;
  std::vector<float> keys(kRows * kDim), reference(kRows), similarity(1120), logits(1120);
  for (size_t i = 0; i < keys.size(); ++i) {
    constexpr float kLengths[] = {1, 1e-22f, 1e19f, 0, 3e-5f};
    keys[i] = (normal(rng) + (i % kDim < 3 ? 2 : 0)) * kLengths[i / kDim % 5];
  }
  CachedRows rows(c, &keys);
  const auto views = rows.views(c.rows);
  ScoredKeys scored{logits.data(), 1120, similarity.data()};
  QueryRing ring;
  for (const float threshold : {-0.5f, 0.5f, 0.9f, 0.97f, 1.0f}) {
    KeyScoreQuery q;
    q.kind = KeyScore::redundancy;
    q.threshold = threshold;
    q.ring = &ring;
    rows.backend().score_tables(q, {views.data(), 1, 1, 1, 1.0f, true}, &scored);
    rkv_similarity(keys.data(), kRows, kDim, threshold, false, reference.data());
    for (size_t s = 0; s < kRows; ++s)
      ASSERT_NEAR(similarity[s], reference[s], 1e-6) << threshold << " " << s;
  }
}

TEST(CacheOps, WindowLogitsAreTheMaximumOfTheGroup) {
  CacheCase c;
  c.n_heads = 4, c.n_kv_heads = 2, c.head_dim = 8, c.rows = 37;
  CachedRows rows(c);
  auto views = rows.views(c.rows);
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  constexpr int kRing = 5, kWindow = 3;
  std::vector<float> ring_data(kRing * 4 * 8);
  for (float& v : ring_data) v = normal(rng);
  const QueryRing ring{ring_data.data(), kRing};
  KeyScoreQuery q;
  q.kind = KeyScore::redundancy;
  q.threshold = 0.5f;
  q.ring = &ring;
  q.window = kWindow;
  q.next_position = 42;
  std::vector<uint32_t> live = {~(1u << 9), ~0u};
  views[1].live = live.data();
  std::vector<float> logits(2 * kWindow * 40), similarity(2 * 40);
  std::vector<ScoredKeys> scored = {{logits.data(), 40, similarity.data()},
                                    {logits.data() + kWindow * 40, 40, similarity.data() + 40}};
  rows.backend().score_tables(q, {views.data(), 1, 4, 2, 0.5f, true}, scored.data());
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < kWindow; ++i) {
      for (int s = 0; s < c.rows; ++s) {
        double most = -INFINITY;
        for (int g = 0; g < 2; ++g) {
          double dot = 0;
          for (int d = 0; d < 8; ++d)
            dot +=
                double{ring_data[static_cast<size_t>(((39 + i) % kRing * 4 + h * 2 + g) * 8 + d)]} *
                double{rows.key(0, h, s)[d]};
          most = std::max(most, 0.5 * dot);
        }
        const float got = scored[static_cast<size_t>(h)].logits[i * 40 + s];
        if (h == 1 && s == 9) {
          ASSERT_LT(got, -1e20f);
        } else {
          ASSERT_NEAR(got, most, 1e-5);
        }
      }
    }
  }
  EXPECT_EQ(similarity[40 + 9], 0.0f);  // a dead slot is like no other
}

TEST(CacheOps, CopiesWholeBlocks) {
  CacheCase c;
  CachedRows rows(c);
  const std::vector<BlockCopy> copies = {{rows.blocks(0)[1], rows.spare()[0]},
                                         {rows.spare()[0], rows.spare()[1]}};
  rows.backend().copy_blocks(copies);
  rows.blocks(0)[1] = rows.spare()[1];
  const auto views = rows.views(c.rows);
  std::vector<float> keys(static_cast<size_t>(c.rows * c.head_dim));
  rows.backend().read_keys(0, 0, views[0], c.rows, keys.data());
  for (int r = 16; r < 32; ++r)
    for (int d = 0; d < c.head_dim; ++d)
      ASSERT_EQ(keys[static_cast<size_t>(r * c.head_dim + d)], rows.key(0, 0, r)[d]);
}

}  // namespace
}  // namespace pagefold
