#include <gtest/gtest.h>

#include <cstring>

#include "matmul_case.h"
#include "tests_isa.h"

namespace pagefold::kernels::test {
namespace {

constexpr float kGuard = -12345.0f;

class Matmul : public ::testing::TestWithParam<const Kernels*> {};
INSTANTIATE_TEST_SUITE_P(Isa, Matmul, ::testing::ValuesIn(all_kernels()), isa_name);

void expect_near_reference(const Case& c, const std::vector<float>& y, int64_t ldy, int step = 1) {
  for (int r = 0; r < c.rows; ++r) {
    for (int o = 0; o < c.n_out; o += step) {
      const auto e = c.expected(r, o);
      const double got = y[static_cast<size_t>(r * ldy + o)];
      ASSERT_LE(std::abs(got - e.value), e.bound) << "row " << r << " output " << o << " n_in "
                                                  << c.n_in << ": " << got << " for " << e.value;
    }
  }
}

TEST_P(Matmul, MatchesFloat64WithinRounding) {
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(config.name());
    for (const int n_in : config.widths()) {
      for (const int n_out : {1, 17, 80}) {
        const Case c(config, n_out, n_in, 3, static_cast<uint64_t>(n_in));
        std::vector<float> y(static_cast<size_t>(c.rows * n_out), kGuard);
        GetParam()->matmul(c.args(0, c.rows, y.data(), n_out));
        expect_near_reference(c, y, n_out);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Matmul, HeadSizedOutput) {
  for (const Config& config :
       {Config{PackKind::w8, InputKind::i8}, Config{PackKind::w4, InputKind::i8, 32, true},
        Config{PackKind::bf16, InputKind::f32}}) {
    SCOPED_TRACE(config.name());
    const Case c(config, 49152, 64, 1);
    std::vector<float> y(static_cast<size_t>(c.n_out), kGuard);
    GetParam()->matmul(c.args(0, 1, y.data(), c.n_out));
    expect_near_reference(c, y, c.n_out, 7);
  }
}

// The one that answers depend on: no output's bits may depend on what is computed beside it.
TEST_P(Matmul, ARowsBitsDoNotDependOnRowsOrTiles) {
  Numbers numbers(7);
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(config.name());
    const int n_in = !config.quantised() ? 77 : config.group > 32 ? 2 * config.group : 160;
    const bool slow = GetParam()->name == "scalar";
    const int rows = slow ? 9 : config.group > 32 ? 17 : 40;
    const Case c(config, 7 * 16 + 5, n_in, rows);
    std::vector<float> bias(static_cast<size_t>(c.n_out));
    for (float& b : bias) b = numbers.value();
    const int64_t ldy = c.n_out + 5;
    const size_t size = static_cast<size_t>(rows * ldy);
    std::vector<float> start(size);
    for (float& v : start) v = numbers.value();
    for (const bool extras : {false, true}) {
      const auto run = [&](int row0, int n, int tile_begin, int tile_end, std::vector<float>& y) {
        MatmulArgs a = c.args(row0, n, y.data() + row0 * ldy, ldy);
        a.tile_begin = tile_begin;
        a.tile_end = tile_end;
        a.bias = extras ? bias.data() : nullptr;
        a.accumulate = extras;
        GetParam()->matmul(a);
      };
      const int tiles = c.shape.tiles();
      std::vector<float> alone = start;  // one row, one tile at a time
      for (int r = 0; r < rows; ++r) {
        for (int t = 0; t < tiles; ++t) run(r, 1, t, t + 1, alone);
      }
      for (int n = 1; n <= rows; ++n) {
        std::vector<float> y = start;
        const int row0 = numbers.below(rows - n + 1);
        const int split = numbers.below(tiles + 1);
        run(row0, n, 0, split, y);
        run(row0, n, split, tiles, y);
        // Rows and columns outside are untouched: compare everything.
        std::vector<float> want = start;
        for (int r = row0; r < row0 + n; ++r) {
          std::copy_n(alone.data() + r * ldy, c.n_out, want.data() + r * ldy);
        }
        ASSERT_EQ(std::memcmp(y.data(), want.data(), size * 4), 0)
            << n << " rows, split at tile " << split << (extras ? ", bias and accumulate" : "");
      }
    }
  }
}

TEST_P(Matmul, BiasAndAccumulateAddToTheResult) {
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(config.name());
    const Case c(config, 37, std::max(64, config.group), 5);
    const size_t size = static_cast<size_t>(c.rows * c.n_out);
    std::vector<float> plain(size), y(size), start(size), bias(static_cast<size_t>(c.n_out));
    Numbers numbers(3);
    for (float& v : start) v = numbers.value();
    for (float& v : bias) v = numbers.value();
    GetParam()->matmul(c.args(0, c.rows, plain.data(), c.n_out));
    y = start;
    MatmulArgs a = c.args(0, c.rows, y.data(), c.n_out);
    a.bias = bias.data();
    a.accumulate = true;
    GetParam()->matmul(a);
    for (size_t i = 0; i < size; ++i) {
      const float want = start[i] + (plain[i] + bias[i % static_cast<size_t>(c.n_out)]);
      if (config.int8_rows() == 2) {  // the second part of a sum comes after bias and start
        ASSERT_NEAR(y[i], want, 1e-6 * (std::abs(plain[i]) + 4));
      } else {
        ASSERT_EQ(y[i], want);
      }
    }
  }
}

// Integer dot products are exact and the few float operations are the same everywhere.
TEST_P(Matmul, Int8PathEqualsScalarBitForBit) {
  for (const Config& config : all_configs()) {
    if (config.int8_rows() == 0) continue;
    SCOPED_TRACE(config.name());
    const Case c(config, 45, config.group <= 64 ? 576 : 5 * config.group, 11);
    const size_t size = static_cast<size_t>(c.rows * c.n_out);
    std::vector<float> want(size), y(size);
    all_kernels()[0]->matmul(c.args(0, c.rows, want.data(), c.n_out));
    GetParam()->matmul(c.args(0, c.rows, y.data(), c.n_out));
    ASSERT_EQ(std::memcmp(y.data(), want.data(), size * 4), 0);
  }
}

// Longest chains of largest products: overflow or saturation anywhere would show.
TEST_P(Matmul, Int8ExtremesDoNotSaturate) {
  for (const Config& config : all_configs()) {
    if (config.int8_rows() == 0) continue;
    SCOPED_TRACE(config.name());
    for (const bool negative : {false, true}) {
      Case c(config, 16, std::max(64, config.group), 2);
      const int top = config.nibbles() ? (negative && config.kind == PackKind::t4 ? 0 : 15)
                      : negative       ? -128
                                       : 127;
      std::fill(c.q.begin(), c.q.end(), static_cast<int8_t>(top));
      c.pack();
      for (size_t i = 0; i < c.xq.size(); ++i) {
        c.xq[i] = i < static_cast<size_t>(c.n_in) ? int8_t{127} : int8_t{-127};
      }
      for (size_t i = 0; i < c.xsums.size(); ++i) {
        c.xsums[i] = i < static_cast<size_t>(c.n_in) / 16 ? 16 * 127 : -16 * 127;
      }
      std::vector<float> y(static_cast<size_t>(c.rows * c.n_out));
      GetParam()->matmul(c.args(0, c.rows, y.data(), c.n_out));
      expect_near_reference(c, y, c.n_out);
    }
  }
}

}  // namespace
}  // namespace pagefold::kernels::test
