// Every instruction set against plain arithmetic on the values that were appended.
#include <cmath>

#include "attention_fixture.h"
#include "kernels/kernels.h"
#include "kernels/keys.h"
#include "tests_isa.h"

namespace pagefold::kernels {
namespace {

class Keys : public testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k() const { return *GetParam(); }
};

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

TEST_P(Keys, UnpackGivesTheStoredValues) {
  for (const DType type : kTypes) {
    for (const int dim : {8, 80, 96, 128}) {
      const KvLayout layout{type, DType::f32, dim, 16};
      PagedCache cache(layout, 16, 3, attention_isas()[0]);
      Aligned<float> keys(static_cast<size_t>(dim * 16), -1.0f);
      k().unpack_keys(layout, cache.bytes.data() + cache.blocks[0] * layout.block_bytes(),
                      keys.data());
      for (int s = 0; s < 16; ++s) {
        for (int d = 0; d < dim; ++d) {
          ASSERT_EQ(keys[static_cast<size_t>(d * 16 + s)],
                    through(type, cache.k[static_cast<size_t>(s * dim + d)]))
              << describe(layout) << " slot " << s << " dim " << d;
        }
      }
    }
  }
}

TEST_P(Keys, ScoresFollowTheFormula) {
  constexpr int kDim = 64, kBands = 24, kSets = 2;  // 16 dims are not rotated
  for (int group = 1; group <= 9; ++group) {
    const size_t n = static_cast<size_t>(group * kBands);
    const auto keys = random_values(kDim * 16, 1), re = random_values(kSets * n, 2),
               im = random_values(kSets * n, 3), norm = random_values(n, 4);
    for (const bool half : {true, false}) {
      for (const int sets : {1, kSets}) {
        std::vector<float> out(static_cast<size_t>(group * 20), 7.0f);
        StripScoreArgs a{keys.data(), kBands,     half,      group,
                         sets,        re.data(),  im.data(), static_cast<int64_t>(n),
                         norm.data(), out.data(), 20};
        k().score_strip(a);
        for (int g = 0; g < group; ++g) {
          for (int s = 0; s < 16; ++s) {
            double best = -INFINITY, norms = 0;
            for (int set = 0; set < sets; ++set) {
              double sum = 0;
              for (int f = 0; f < kBands; ++f) {
                const size_t c = static_cast<size_t>(set) * n + static_cast<size_t>(g * kBands + f);
                const int x = half ? f : 2 * f, y = half ? f + kBands : 2 * f + 1;
                const double kr = keys[static_cast<size_t>(x * 16 + s)],
                             ki = keys[static_cast<size_t>(y * 16 + s)];
                sum += double{re[c]} * kr + double{im[c]} * ki;
                if (set == 0) norms += double{norm[c]} * std::hypot(kr, ki);
              }
              best = std::max(best, sum);
            }
            ASSERT_NEAR(out[static_cast<size_t>(g * 20 + s)], best + norms, 2e-5)
                << "group " << group << " head " << g << " slot " << s;
          }
          for (int s = 16; s < 20; ++s) ASSERT_EQ(out[static_cast<size_t>(g * 20 + s)], 7.0f);
        }
      }
    }
  }
}

TEST_P(Keys, ZeroKeyScoresZero) {
  const std::vector<float> keys(8 * 16, 0.0f), w(4, 1.0f);
  std::vector<float> out(16, 7.0f);
  k().score_strip({keys.data(), 4, true, 1, 1, w.data(), w.data(), 4, w.data(), out.data(), 16});
  for (const float v : out) EXPECT_NEAR(v, 0.0f, 1e-15f);
}

TEST_P(Keys, DotsDoNotDependOnTheirNeighbours) {
  constexpr int kDim = 40, kStripCount = 3, kQueries = 11;
  const auto strips = random_values(kDim * 16 * kStripCount, 5);
  const auto queries = random_values(kDim * kQueries, 6);
  std::vector<float> out(kQueries * 48), alone(48);
  k().dot_strips(
      {strips.data(), kStripCount, kDim, queries.data(), kDim, kQueries, 0.5f, out.data(), 48});
  for (int q = 0; q < kQueries; ++q) {
    k().dot_strips({strips.data(), kStripCount, kDim, queries.data() + q * kDim, kDim, 1, 0.5f,
                    alone.data(), 48});
    ASSERT_TRUE(same_bits(alone.data(), out.data() + q * 48, 48)) << "query " << q;
    for (int s = 0; s < 48; ++s) {
      double sum = 0;
      for (int d = 0; d < kDim; ++d)
        sum += double{queries[static_cast<size_t>(q * kDim + d)]} *
               double{strips[static_cast<size_t>((s / 16 * kDim + d) * 16 + s % 16)]};
      ASSERT_NEAR(alone[static_cast<size_t>(s)], 0.5 * sum, 1e-5);
    }
  }
}

// Moves must give the same bytes as appending the moved values in the first place.
TEST_P(Keys, MovedSlotsAreAsIfAppended) {
  const std::vector<std::pair<int, int>> moves = {{3, 0}, {4, 1}, {7, 2}, {12, 5}, {15, 14}};
  for (const DType kt : kTypes) {
    for (const DType vt : kTypes) {
      for (const int dim : {8, 24, 64, 128}) {
        for (const int from_strip : {0, 1}) {  // within a strip, and across
          const KvLayout layout{kt, vt, dim, 32};
          PagedCache cache(layout, 32, 9, attention_isas()[0]);
          std::byte* block = cache.bytes.data() + cache.blocks[0] * layout.block_bytes();
          LaneMoves m;
          m.from = block + static_cast<size_t>(from_strip) * layout.strip_bytes();
          m.to = block;
          for (const auto& [from, to] : moves) {
            m.from_lane[m.n] = static_cast<uint8_t>(from);
            m.to_lane[m.n++] = static_cast<uint8_t>(to);
          }
          k().move_lanes(layout, m);

          PagedCache want(layout, 32, 9, attention_isas()[0]);
          for (const auto& [from, to] : moves) {
            const auto copy = [&](std::vector<float>& x) {
              std::copy_n(x.begin() + (from_strip * 16 + from) * dim, dim, x.begin() + to * dim);
            };
            copy(want.k), copy(want.v);
          }
          want.append(attention_isas()[0], 0, 32);
          ASSERT_EQ(std::memcmp(block, want.bytes.data() + want.blocks[0] * layout.block_bytes(),
                                layout.block_bytes()),
                    0)
              << describe(layout) << " from strip " << from_strip;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Keys, testing::ValuesIn(test::all_kernels()), test::isa_name);

}  // namespace
}  // namespace pagefold::kernels
