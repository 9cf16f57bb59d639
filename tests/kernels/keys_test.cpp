// Every instruction set against plain arithmetic on the values that were appended.
#include <cmath>
#include <limits>

#include "attention_fixture.h"
#include "kernels/kernels.h"
#include "kernels/keys.h"
#include "tests_isa.h"

namespace pagefold::kernels {
namespace {

class Keys : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k() const { return *GetParam(); }
};

TEST_P(Keys, UnpackGivesTheStoredValues) {
  for (const DType type : kAllTypes) {
    for (const DType v : {DType::f32, DType::int8}) {
      for (const int dim : {8, 40, 80, 96, 128}) {
        for (const KvLayout& layout : with_groups({type, v, dim, 16})) {
          PagedCache cache(layout, 16, 3, attention_isas()[0]);
          cache.read_back();
          Aligned<float> keys(static_cast<size_t>(dim * 16), -1.0f);
          k().unpack_keys(layout, cache.strip(0), keys.data());
          for (int s = 0; s < 16; ++s)
            for (int d = 0; d < dim; ++d)
              ASSERT_EQ(keys[static_cast<size_t>(d * 16 + s)], cache.stored(true, s, d))
                  << describe(layout) << " slot " << s << " dim " << d;
        }
      }
    }
  }
}

// Every code of the 8-bit floats, subnormals, infinities and NaN included.
TEST_P(Keys, UnpackDecodesEveryCode) {
  for (const DType type : {DType::fp8_e4m3, DType::fp8_e5m2}) {
    const KvLayout layout{type, DType::bf16, 16, 16};
    Aligned<std::byte> strip(layout.strip_bytes());
    Aligned<float> keys(256);
    const StripMap map{layout};
    for (int i = 0; i < 256; ++i)
      map.put_raw(strip.data(), true, i / 16, i % 16, static_cast<uint32_t>(i));
    k().unpack_keys(layout, strip.data(), keys.data());
    for (unsigned i = 0; i < 256; ++i) {
      const float want = fp8_value(type, i), got = keys[i];
      if (std::isnan(want))
        EXPECT_TRUE(std::isnan(got)) << short_name(type) << " code " << i;
      else
        EXPECT_TRUE(same_bits(&got, &want, 1)) << short_name(type) << " code " << i << ": " << got;
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

TEST_P(Keys, UnitStripsAreRowsOfLengthOne) {
  std::mt19937 rng(9);
  std::normal_distribution<float> normal;
  constexpr float kLengths[] = {1, 1e-22f, 1e19f, 0, 3e-5f};
  for (const int dim : {8, 40, 64, 128}) {
    std::vector<float> keys(static_cast<size_t>(dim * 16)), rows(keys.size(), -1.0f);
    std::vector<float> sums(static_cast<size_t>(dim), 2.0f);
    constexpr unsigned kCounts = 0xbfdf;  // all but 5 and 14
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = normal(rng) * kLengths[i % 16 % 5];
    keys[5] = std::numeric_limits<float>::quiet_NaN();
    const StripUnits units = k().unit_strip({keys.data(), dim, kCounts, rows.data(), sums.data()});
    unsigned directed = 0;
    float largest = 0;
    std::vector<double> total(static_cast<size_t>(dim), 2.0);
    for (int lane = 0; lane < 16; ++lane) {
      double square = 0;
      for (int d = 0; d < dim; ++d) {
        const double x = keys[static_cast<size_t>(d * 16 + lane)];
        square += x * x;
      }
      const bool held = (kCounts >> lane & 1u) != 0 && square > 0;
      directed |= held ? 1u << lane : 0u;
      for (int d = 0; d < dim; ++d) {
        const float x = rows[static_cast<size_t>(lane * dim + d)];
        const double want =
            held ? double{keys[static_cast<size_t>(d * 16 + lane)]} / std::sqrt(square) : 0.0;
        ASSERT_NEAR(x, want, 3e-7) << dim << " " << lane << " " << d;
        total[static_cast<size_t>(d)] += want;
        largest = std::max(largest, std::abs(x));
      }
    }
    EXPECT_EQ(units.directed, directed);
    EXPECT_EQ(units.largest, largest);
    for (size_t d = 0; d < total.size(); ++d) ASSERT_NEAR(sums[d], total[d], 3e-6);
  }
}

TEST_P(Keys, DotRowsAreProductsWithOneVector) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal;
  for (const int dim : {8, 24, 64, 80, 128}) {
    for (const int64_t n : {1, 2, 7, 33}) {
      std::vector<float> rows(static_cast<size_t>(n * dim)), with(static_cast<size_t>(dim));
      for (float& x : rows) x = normal(rng);
      for (float& x : with) x = normal(rng);
      std::vector<float> out(static_cast<size_t>(n + 1), 9.0f);
      k().dot_rows({rows.data(), n, dim, with.data(), out.data()});
      for (int64_t i = 0; i < n; ++i) {
        double want = 0, size = 0;
        for (int d = 0; d < dim; ++d) {
          const double product =
              double{rows[static_cast<size_t>(i * dim + d)]} * double{with[static_cast<size_t>(d)]};
          want += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(out[static_cast<size_t>(i)], want, 1e-6 * size) << dim << " " << i;
      }
      EXPECT_EQ(out.back(), 9.0f);
    }
  }
}

TEST_P(Keys, EncodedStripsAreRoundedRows) {
  std::mt19937 rng(10);
  for (const int dim : {8, 40, 64, 128}) {
    Aligned<int8_t> codes(static_cast<size_t>(dim * 16));
    std::vector<float> rows(codes.size());
    int32_t sums[16];
    for (float& x : rows) x = static_cast<float>(static_cast<int>(rng() % 2033) - 1016) / 1016.0f;
    rows[0] = 1, rows[1] = -1;
    k().encode_strip({rows.data(), dim, 127.0f, codes.data(), sums});
    for (int lane = 0; lane < 16; ++lane) {
      int32_t sum = 0;
      for (int d = 0; d < dim; ++d) {
        const int code = codes[static_cast<size_t>(d / 4 * 64 + lane * 4 + d % 4)];
        ASSERT_EQ(code, std::nearbyint(rows[static_cast<size_t>(lane * dim + d)] * 127.0f));
        sum += code;
      }
      ASSERT_EQ(sums[lane], sum) << dim << " " << lane;
    }
  }
}

TEST_P(Keys, NearStripsCompareExactIntegers) {
  std::mt19937 rng(8);
  for (const int dim : {8, 40, 64, 128}) {
    constexpr int kStripCount = 5, kCount = kStripCount * 16;
    Aligned<int8_t> codes(static_cast<size_t>(kCount * dim));
    for (size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<int8_t>(static_cast<int>(rng() % 255) - 127);
    // The largest products there are, of both signs.
    std::fill_n(codes.data(), 64, int8_t{127});
    std::fill_n(codes.data() + dim * 16, 64, int8_t{-127});
    const auto code = [&](int slot, int d) {
      return int32_t{
          codes[static_cast<size_t>(slot / 16 * dim * 16 + d / 4 * 64 + slot % 16 * 4 + d % 4)]};
    };
    std::vector<int32_t> sums(kCount, 0), rows;
    for (int s = 0; s < kCount; ++s) {
      for (int d = 0; d < dim; ++d) sums[static_cast<size_t>(s)] += code(s, d);
      rows.push_back((s * 7 + 3) % kCount);
    }
    for (const int n : {1, 2, 3, 9, 23, kCount}) {
      for (const int first : {0, 3}) {
        for (const int32_t limit : {-20000, 0, 5000, 127 * 127 * 8 - 1, 127 * 127 * dim}) {
          const int strips = kStripCount - first;
          std::vector<uint16_t> out(static_cast<size_t>(n * strips), 0xffff);
          k().near_strips(
              {codes.data(), sums.data(), dim, rows.data(), n, first, strips, limit, out.data()});
          for (int i = 0; i < n * strips * 16; ++i) {
            const int slot = first * 16 + i % (strips * 16);
            int32_t dot = 0;
            for (int d = 0; d < dim; ++d)
              dot += code(rows[static_cast<size_t>(i / (strips * 16))], d) * code(slot, d);
            ASSERT_EQ((out[static_cast<size_t>(i / 16)] >> (i % 16) & 1) != 0, dot > limit)
                << dim << " " << n << " " << limit << " " << dot;
          }
        }
      }
    }
  }
}

// Moves must give the same bytes as appending the moved values in the first place.
constexpr std::pair<int, int> kMoves[] = {{3, 0}, {4, 1}, {7, 2}, {12, 5}, {15, 14}};

void check_moves(const Kernels& kernels, const KvLayout& layout, int from_strip) {
  const int dim = layout.head_dim;
  PagedCache cache(layout, 32, 9, attention_isas()[0]);
  std::byte* block = cache.bytes.data() + cache.blocks[0] * layout.block_bytes();
  LaneMoves m;
  m.from = block + static_cast<size_t>(from_strip) * layout.strip_bytes();
  m.to = block;
  for (const auto& [from, to] : kMoves) {
    m.from_lane[m.n] = static_cast<uint8_t>(from);
    m.to_lane[m.n++] = static_cast<uint8_t>(to);
  }
  kernels.move_lanes(layout, m);

  PagedCache want(layout, 32, 9, attention_isas()[0]);
  for (const auto& [from, to] : kMoves) {
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

// Moves must give the same bytes as appending the moved values in the first place: scales too.
TEST_P(Keys, MovedSlotsAreAsIfAppended) {
  for (const DType kt : kAllTypes)
    for (const DType vt : kAllTypes)
      for (const int dim : {8, 24, 64, 80, 128})
        for (const KvLayout& layout : with_groups({kt, vt, dim, 32}))
          for (const int from_strip : {0, 1}) {  // within a strip, and across
            check_moves(k(), layout, from_strip);
            if (HasFatalFailure()) return;
          }
}

TEST_P(Keys, HadamardIsOrthonormalAndItsOwnInverse) {
  for (const int dim : {8, 24, 40, 64, 80, 96, 112, 128, 256}) {
    int block = 1;
    while (dim % (2 * block) == 0) block *= 2;
    const auto row = random_values(static_cast<size_t>(dim), 7);
    std::vector<float> turned = row;
    k().hadamard(turned.data(), dim);
    for (int i = 0; i < dim; ++i) {
      double want = 0;  // Sylvester's matrix: the sign is the parity of the common bits
      for (int j = 0; j < block; ++j) {
        const int common = (i % block) & j;
        want += (__builtin_popcount(static_cast<unsigned>(common)) % 2 ? -1.0 : 1.0) *
                double{row[static_cast<size_t>(i / block * block + j)]};
      }
      ASSERT_NEAR(turned[static_cast<size_t>(i)], want / std::sqrt(double(block)), 2e-6) << dim;
    }
    k().hadamard(turned.data(), dim);
    for (size_t i = 0; i < row.size(); ++i) ASSERT_NEAR(turned[i], row[i], 1e-6) << dim;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Keys, ::testing::ValuesIn(test::all_kernels()), test::isa_name);

}  // namespace
}  // namespace pagefold::kernels
