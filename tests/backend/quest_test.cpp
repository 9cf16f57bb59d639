// Block selection: bounds of blocks, the choice, and attention over the chosen blocks.
#include <numeric>
#include <set>

#include "backend/attention_rig.h"

namespace pagefold {
namespace {

// Fills a rig's table and returns the bounds that its blocks must have.
std::vector<float> dense_bounds(Rig& rig, int head, int64_t block, int64_t filled, bool upper) {
  const RigOptions& o = rig.options();
  std::vector<float> out(static_cast<size_t>(o.head_dim));
  for (int64_t s = block * o.block_size; s < std::min(filled, (block + 1) * o.block_size); ++s) {
    for (int d = 0; d < o.head_dim; ++d) {
      const float v = through(o.dtype, rig.key(s, head)[d]);
      float& best = out[static_cast<size_t>(d)];
      if (s == block * o.block_size || (upper ? v > best : v < best)) best = v;
    }
  }
  return out;
}

// The bfloat16 next to each value in a direction, or the value where it is one.
void expect_outward(const uint16_t* got, const std::vector<float>& exact, int direction) {
  for (size_t d = 0; d < exact.size(); ++d) {
    const double v = exact[d], bound = bf16_to_f32(got[d]);
    ASSERT_GE((bound - v) * direction, 0) << d;
    // One step of 8 bits of mantissa is at most 2^-7 of the value.
    ASSERT_LT(std::abs(bound - v), std::abs(v) * 0x1p-7 + 1e-38) << d;
    if (bf16_to_f32(f32_to_bf16(exact[d])) == exact[d]) {
      ASSERT_EQ(bound, v) << d;
    }
  }
}

void expect_bounds(Rig& rig) {
  const RigOptions& o = rig.options();
  for (int h = 0; h < o.n_kv_heads; ++h) {
    for (int64_t b = 0; b * o.block_size < rig.len(); ++b) {
      const BlockId id = rig.blocks(h)[static_cast<size_t>(b)];
      expect_outward(rig.backend().page_bounds().lo(id), dense_bounds(rig, h, b, rig.len(), false),
                     -1);
      expect_outward(rig.backend().page_bounds().hi(id), dense_bounds(rig, h, b, rig.len(), true),
                     1);
    }
  }
}

TEST(PageBounds, FollowAppendsAndRefresh) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const int block_size : {16, 32}) {
      RigOptions o{.dtype = type, .block_size = block_size, .threads = 2, .bounds = true};
      Rig rig(o);
      for (const int rows : {5, 100, 1, 1, 30}) {
        rig.step(rows);
        expect_bounds(rig);
      }
      // Computed from the stored keys, over whatever was there.
      for (int h = 0; h < o.n_kv_heads; ++h) {
        auto* bounds = const_cast<uint16_t*>(rig.backend().page_bounds().lo(rig.blocks(h)[1]));
        std::fill_n(bounds, 2 * o.head_dim, f32_to_bf16(99.0f));
        rig.backend().refresh_page_bounds(rig.blocks(h).data(), 0,
                                          (rig.len() + block_size - 1) / block_size, rig.len());
      }
      expect_bounds(rig);
    }
  }
}

// Their pages come and go with the blocks, of those that were taken before bounds were kept too.
TEST(PageBounds, ReleaseTheirPagesWithTheBlocks) {
  Rig rig({.head_dim = 64, .dtype = DType::bf16, .max_slots = 8000});
  cpu::CpuBackend& b = rig.backend();
  std::vector<BlockId> all(900), early;
  std::iota(all.begin(), all.end(), 0);
  early.assign(all.begin(), all.begin() + 300);
  ASSERT_TRUE(b.blocks_taken(early).ok());
  const uint64_t without = b.kv_resident_bytes();
  ASSERT_TRUE(b.enable_page_bounds().ok());
  EXPECT_EQ(b.page_bounds_bytes(), 2 * 2 * 64u);
  EXPECT_GE(b.kv_resident_bytes(), without + 300 * 256);
  ASSERT_TRUE(b.blocks_taken(all).ok());
  EXPECT_GE(b.kv_resident_bytes(), 900 * (4096 + 256));
  const uint64_t given = b.release_kv(0, 0);  // what was committed beyond the blocks
  EXPECT_EQ(given, b.kv_memory().released_bytes);
  b.blocks_freed(std::span(all).subspan(100));
  const uint64_t before = b.kv_resident_bytes();
  EXPECT_GT(b.release_kv(0, 0), 800 * 4096 + 800 * 256 - 2 * 4096);
  EXPECT_LT(b.kv_resident_bytes(), before - 800 * (4096 + 256) + 2 * 4096);
  EXPECT_LT(b.kv_resident_bytes(), 100 * (4096 + 256) + 2 * 4096);
  b.blocks_freed(all);
  b.release_kv(0, 0);
  EXPECT_EQ(b.kv_resident_bytes(), 0);
}

TEST(SelectPages, LastAndFirstAlwaysTiesToTheLower) {
  std::vector<int32_t> chosen;
  const float scores[] = {1, 5, 5, 2, 5, -3};
  cpu::select_pages(scores, 3, 0, chosen);
  EXPECT_EQ(chosen, (std::vector<int32_t>{1, 2, 5}));
  cpu::select_pages(scores, 1, 0, chosen);
  EXPECT_EQ(chosen, (std::vector<int32_t>{5}));
  cpu::select_pages(scores, 3, 1, chosen);
  EXPECT_EQ(chosen, (std::vector<int32_t>{0, 1, 5}));
  cpu::select_pages(scores, 2, 4, chosen);
  EXPECT_EQ(chosen, (std::vector<int32_t>{0, 5}));
  cpu::select_pages(scores, 6, 0, chosen);
  EXPECT_EQ(chosen, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

// The blocks that a decode row of the rig must read, by sums in double.
std::set<int64_t> best_blocks(Rig& rig, int kv, int64_t row, int keep) {
  const RigOptions& o = rig.options();
  const int64_t n = row / o.block_size + 1;
  std::vector<std::pair<double, int64_t>> scores;
  for (int64_t b = 0; b + 1 < n; ++b) {
    const BlockId id = rig.blocks(kv)[static_cast<size_t>(b)];
    const uint16_t* lo = rig.backend().page_bounds().lo(id);
    const uint16_t* hi = rig.backend().page_bounds().hi(id);
    double best = -1e30;
    for (int g = 0; g < rig.group(); ++g) {
      const float* q = rig.query(row, kv * rig.group() + g);
      double sum = 0;
      for (int d = 0; d < o.head_dim; ++d) {
        sum += std::max(double{q[d]} * double{bf16_to_f32(lo[d])},
                        double{q[d]} * double{bf16_to_f32(hi[d])});
      }
      best = std::max(best, sum);
    }
    scores.emplace_back(-best, b);
  }
  std::sort(scores.begin(), scores.end());
  std::set<int64_t> out{n - 1};
  for (int i = 0; i + 1 < keep; ++i) out.insert(scores[static_cast<size_t>(i)].second);
  return out;
}

TEST(Quest, DecodeRowsReadTheBestBlocks) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int threads : {1, 3}) {
      RigOptions o{.dtype = type, .threads = threads, .bounds = true};
      Rig rig(o);
      SeqSignals prompt;
      prompt.quest_blocks = 20;
      prompt.quest_first_layer = 0;
      int64_t read[2] = {0, 0};
      prompt.quest_blocks_read = read;
      Rig plain(o);
      ASSERT_EQ(rig.step(700, &prompt), plain.step(700)) << "rows of a prompt read everything";
      EXPECT_EQ(read[0], 0);
      EXPECT_EQ(read[1], 0);
      int64_t full = 0;
      for (int step = 0; step < 20; ++step) {
        const int64_t row = rig.len();
        Observed seen(o);
        SeqSignals s = seen.rows(0, 1);
        s.quest_blocks = 20;
        s.quest_first_layer = 0;
        s.quest_blocks_read = read;
        const auto out = rig.step(1, &s);
        full += 2 * (row / o.block_size + 1);
        EXPECT_EQ(read[0], (step + 1) * 2 * 20);
        EXPECT_EQ(read[1], full);
        for (int h = 0; h < o.n_heads; ++h) {
          const int kv = h / rig.group();
          const auto best = best_blocks(rig, kv, row, 20);
          std::vector<bool> hidden(static_cast<size_t>(row + 1));
          for (int64_t i = 0; i <= row; ++i)
            hidden[static_cast<size_t>(i)] = best.count(i / o.block_size) == 0;
          const auto want = rig.mix(rig.probabilities(row, h, hidden), kv);
          for (int d = 0; d < o.head_dim; ++d)
            ASSERT_NEAR(out[static_cast<size_t>(h * o.head_dim + d)], want[static_cast<size_t>(d)],
                        type == DType::f32 ? 2e-5 : 2e-2);
          double sum = 0;
          for (int64_t i = 0; i <= row; ++i) {
            const float m = seen.mass[static_cast<size_t>(kv)][static_cast<size_t>(i)];
            if (hidden[static_cast<size_t>(i)]) {
              ASSERT_EQ(m, 0.0f);
            }
            sum += m;
          }
          EXPECT_NEAR(sum, 1.0, 1e-3);
        }
      }
    }
  }
}

TEST(Quest, AsManyBlocksAsThereAreChangesNoBit) {
  RigOptions o{.threads = 2, .bounds = true};
  Rig a(o), b(o);
  a.step(600);
  b.step(600);
  for (int i = 0; i < 20; ++i) {
    int64_t read[2] = {0, 0};
    SeqSignals s;
    s.quest_blocks = static_cast<int>(b.len() / 16 + 1);
    s.quest_first_layer = 0;
    s.quest_blocks_read = read;
    ASSERT_EQ(a.step(1), b.step(1, &s));
    EXPECT_EQ(read[0], 2 * s.quest_blocks);
    EXPECT_EQ(read[1], read[0]);
    s.quest_blocks = 2;
    s.quest_first_layer = 1;
    ASSERT_EQ(a.step(1), b.step(1, &s)) << "an exempt layer";
  }
}

TEST(Quest, SameBitsForAnyThreadsAndLiveMasksHold) {
  std::vector<float> want;
  for (const int threads : {1, 2, 3}) {
    RigOptions o{.threads = threads, .bounds = true};
    Rig rig(o);
    rig.step(900);
    rig.live.assign(2, std::vector<uint32_t>(40, 0xfffefff7u));
    Observed seen(o);
    std::vector<float> got;
    for (int i = 0; i < 5; ++i) {
      SeqSignals s = seen.rows(0, 1);
      s.quest_blocks = 30;
      s.quest_first_layer = 0;
      const auto out = rig.step(1, &s);
      got.insert(got.end(), out.begin(), out.end());
    }
    for (size_t i = 0; i < 900; ++i)
      if (i % 32 == 3 || i % 32 == 16) {
        ASSERT_EQ(seen.mass[0][i], 0.0f);
      }
    for (const auto& m : seen.mass) got.insert(got.end(), m.begin(), m.end());
    if (want.empty()) want = got;
    ASSERT_EQ(got, want);
  }
}

}  // namespace
}  // namespace pagefold
