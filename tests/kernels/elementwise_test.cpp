#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/matmul_isa.h"
#include "matmul_case.h"
#include "tests_isa.h"

namespace pagefold::kernels::test {
namespace {

constexpr double kU = 0x1p-24;  // half a unit in the last place of 1

class Elementwise : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Elementwise, ::testing::ValuesIn(all_kernels()), isa_name);

std::vector<float> random_values(int n, uint64_t seed, float range = 1.0f) {
  Numbers numbers(seed);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = numbers.value() * range;
  return v;
}

// Bit patterns of every exponent, both signs, subnormals, infinities and NaN.
std::vector<float> all_sorts_of_floats(int n) {
  Numbers numbers(5);
  std::vector<float> v = {0.0f,       -0.0f,     INFINITY, -INFINITY,   NAN,
                          65504.0f,   65520.0f,  65519.9f, 0x1p-24f,    0x1p-25f,
                          0x1.8p-25f, 0x1p-149f, 3.4e38f,  0x1.fffp-15f};
  while (static_cast<int>(v.size()) < n) v.push_back(std::bit_cast<float>(numbers.bits()));
  return v;
}

TEST_P(Elementwise, Bfloat16RoundingEqualsTheReference) {
  for (const int n : {1, 7, 16, 33, 4099}) {
    const std::vector<float> x = all_sorts_of_floats(n + 14);
    const size_t m = x.size();
    std::vector<uint16_t> y(m + 1, 0xabcd);
    k().to_bf16(x.data(), static_cast<int64_t>(m), y.data());
    std::vector<float> rounded = x;
    k().round_to(DType::bf16, rounded.data(), static_cast<int64_t>(m));
    for (size_t i = 0; i < m; ++i) {
      ASSERT_EQ(y[i], f32_to_bf16(x[i])) << x[i];
      ASSERT_EQ(std::bit_cast<uint32_t>(rounded[i]), static_cast<uint32_t>(y[i]) << 16);
    }
    EXPECT_EQ(y[m], 0xabcd);
  }
}

TEST_P(Elementwise, Float16RoundingEqualsTheReference) {
  std::vector<float> x = all_sorts_of_floats(5001);
  std::vector<float> y = x;
  k().round_to(DType::f16, y.data(), static_cast<int64_t>(y.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const float want = f16_to_f32(f32_to_f16(x[i]));
    ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(want)) << x[i];
  }
  y = x;
  k().round_to(DType::f32, y.data(), static_cast<int64_t>(y.size()));
  EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * 4), 0);
}

TEST_P(Elementwise, RmsNormMatchesFloat64) {
  for (const int n : {1, 5, 16, 64, 96, 576, 1000, 2048}) {
    const std::vector<float> x = random_values(n, 1, 3.0f), gamma = random_values(n, 2);
    const float eps = 1e-5f;
    std::vector<float> y(static_cast<size_t>(n));
    k().rms_norm(x.data(), gamma.data(), eps, n, y.data());
    double sum = 0;
    for (float v : x) sum += double{v} * v;
    const double r = 1 / std::sqrt(sum / n + double{eps});
    for (int i = 0; i < n; ++i) {
      const double want = x[static_cast<size_t>(i)] * r * gamma[static_cast<size_t>(i)];
      // The sum of n squares passes at most n + 1 roundings, halved by the root; 6 more follow.
      ASSERT_LE(std::abs(y[static_cast<size_t>(i)] - want), (n / 2.0 + 7) * kU * std::abs(want));
    }
    std::vector<float> in_place = x;
    k().rms_norm(in_place.data(), gamma.data(), eps, n, in_place.data());
    EXPECT_EQ(in_place, y);
  }
}

TEST_P(Elementwise, RmsNormOfZerosIsZero) {
  const std::vector<float> x(64, 0.0f), gamma(64, 2.0f);
  std::vector<float> y(64, 1.0f);
  k().rms_norm(x.data(), gamma.data(), 1e-6f, 64, y.data());
  EXPECT_EQ(y, x);
}

TEST_P(Elementwise, SiluMulMatchesFloat64) {
  for (const int n : {1, 15, 16, 17, 1536}) {
    const std::vector<float> gate = random_values(n, 3, 40.0f), up = random_values(n, 4, 5.0f);
    std::vector<float> y(static_cast<size_t>(n) + 1, 77.0f);
    k().silu_mul(gate.data(), up.data(), n, y.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i];
      const double want = g / (1 + std::exp(-g)) * up[i];
      // exp: 2 units in the last place = 4u; the sum, the quotient and the product: u each.
      ASSERT_LE(std::abs(y[i] - want), 8 * kU * std::abs(want)) << g;
    }
    EXPECT_EQ(y.back(), 77.0f);
  }
}

TEST_P(Elementwise, SiluMulAtTheEnds) {
  const std::vector<float> gate = {0.0f, -1000.0f, 1000.0f, -88.0f, NAN, INFINITY, -3e38f, 3e38f};
  const std::vector<float> up(8, 1.0f);
  std::vector<float> y(8);
  k().silu_mul(gate.data(), up.data(), 8, y.data());
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], 1000.0f);
  EXPECT_NEAR(y[3], -88.0 * std::exp(-88.0), 1e-41);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], INFINITY);
  EXPECT_EQ(y[6], 0.0f);
  EXPECT_EQ(y[7], 3e38f);
}

TEST_P(Elementwise, RopeMatchesFloat64AndLeavesTheRest) {
  for (const int rot : {2, 6, 10, 32, 48, 64, 100, 128}) {
    for (const bool half_layout : {false, true}) {
      const int head_dim = rot + 6;
      const std::vector<float> start = random_values(head_dim, 6);
      std::vector<float> cos(static_cast<size_t>(rot / 2)), sin(cos.size());
      for (size_t i = 0; i < cos.size(); ++i) {
        cos[i] = std::cos(0.3f * static_cast<float>(i));
        sin[i] = std::sin(0.3f * static_cast<float>(i));
      }
      std::vector<float> head = start;
      k().rope(head.data(), cos.data(), sin.data(), rot, half_layout);
      for (int i = 0; i < rot / 2; ++i) {
        const auto p = static_cast<size_t>(half_layout ? i : 2 * i);
        const auto q = static_cast<size_t>(half_layout ? i + rot / 2 : 2 * i + 1);
        const double a = start[p], b = start[q];
        const double c = cos[static_cast<size_t>(i)], s = sin[static_cast<size_t>(i)];
        const double bound = 2 * kU * (std::abs(a) + std::abs(b));
        ASSERT_NEAR(head[p], a * c - b * s, bound) << rot << " pair " << i;
        ASSERT_NEAR(head[q], b * c + a * s, bound) << rot << " pair " << i;
      }
      for (int i = rot; i < head_dim; ++i) {
        EXPECT_EQ(head[static_cast<size_t>(i)], start[static_cast<size_t>(i)]);
      }
    }
  }
}

using ExpFunction = void (*)(const float*, int, float*);
ExpFunction exp_of(const Kernels& k) {
  if (k.name == "avx512") return avx512::exp_values;
  return k.name == "avx2" ? avx2::exp_values : scalar::exp_values;
}

TEST_P(Elementwise, ExpIsWithinTwoUnitsInTheLastPlace) {
  std::vector<float> x;
  for (float v = -103.0f; v < 88.72f; v += 0.00037f) x.push_back(v);
  std::vector<float> y(x.size());
  exp_of(k())(x.data(), static_cast<int>(x.size()), y.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(double{x[i]});
    const double unit = std::max(std::ldexp(1.0, std::ilogb(want) - 23), 0x1p-149);
    worst = std::max(worst, std::abs(y[i] - want) / unit);
  }
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_ulp", std::to_string(worst));
  const float ends[6] = {-INFINITY, -1000.0f, 0.0f, 89.0f, INFINITY, NAN};
  float out[6];
  exp_of(k())(ends, 6, out);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 1.0f);
  EXPECT_EQ(out[3], INFINITY);
  EXPECT_EQ(out[4], INFINITY);
  EXPECT_TRUE(std::isnan(out[5]));
}

struct Quantized {
  Quantized(const Kernels& k, const std::vector<float>& x, int64_t ldx, int rows, int n)
      : q(static_cast<size_t>(rows * n)),
        scale(q.size() / 32),
        sums(q.size() / 16),
        rest(q.size()) {
    k.quantize_rows(x.data(), ldx, rows, n, {q.data(), scale.data(), sums.data()}, rest.data());
  }
  double value(size_t i) const { return q[i] * double{scale[i / 32]}; }
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sums;
  std::vector<float> rest;
};

TEST_P(Elementwise, QuantizeRowsKeepsItsPromises) {
  const int rows = 3, n = 96, ldx = 101;
  std::vector<float> x = random_values((rows - 1) * ldx + n, 9, 7.0f);
  std::fill_n(x.begin() + 32, 32, 0.0f);                                      // a block of zeros
  for (int i = 0; i < 32; ++i) x[static_cast<size_t>(ldx + i)] *= 0x1p-140f;  // too small to scale
  const Quantized z(k(), x, ldx, rows, n);
  for (int r = 0; r < rows; ++r) {
    for (int b = 0; b < n / 32; ++b) {
      const float scale = z.scale[static_cast<size_t>(r * 3 + b)];
      float max = 0;
      for (int i = 0; i < 32; ++i) {
        max = std::max(max, std::abs(x[static_cast<size_t>(r * ldx + b * 32 + i)]));
      }
      if (max > 1e-30f) {
        EXPECT_EQ(scale, max / 127.0f);
      } else {
        EXPECT_EQ(scale, 0.0f);
      }
      int sums[2] = {0, 0};
      for (int i = 0; i < 32; ++i) {
        const int q = z.q[static_cast<size_t>(r * n + b * 32 + i)];
        EXPECT_LE(std::abs(q), 127);
        sums[i / 16] += q;
        const double v = x[static_cast<size_t>(r * ldx + b * 32 + i)];
        // Half a step, and what float32 rounding of x * (127 / max) may move across the half.
        EXPECT_LE(std::abs(q * double{scale} - v), scale * (0.5 + 127 * 4 * kU) + 0x1p-120);
      }
      EXPECT_EQ(z.sums[static_cast<size_t>(r * 6 + b * 2)], sums[0]);
      EXPECT_EQ(z.sums[static_cast<size_t>(r * 6 + b * 2 + 1)], sums[1]);
    }
  }
}

TEST_P(Elementwise, QuantizeRowsEqualsScalarBitForBit) {
  std::vector<float> x = random_values(40 * 1536, 10, 100.0f);
  x[5] = NAN;
  x[40] = INFINITY;
  x[70] = -INFINITY;
  for (size_t i = 0; i < 32; ++i) x[96 + i] = i < 16 ? 1.0f : -0.5f / 127;  // ties
  const Quantized want(*all_kernels()[0], x, 1536, 40, 1536), got(k(), x, 1536, 40, 1536);
  EXPECT_EQ(want.q, got.q);
  EXPECT_EQ(want.sums, got.sums);
  EXPECT_EQ(std::memcmp(want.scale.data(), got.scale.data(), want.scale.size() * 4), 0);
  EXPECT_TRUE(std::isnan(got.scale[0]));  // what is not finite must not turn into plain numbers
  EXPECT_TRUE(std::isnan(got.scale[1]));
  EXPECT_TRUE(std::isnan(got.scale[2]));
}

// What the first quantisation lost, quantised in turn, leaves 1 / (127 * 508) of a block's
// largest value.
TEST_P(Elementwise, TwoRowsOfInt8HoldSixteenBits) {
  const int n = 1536;
  const std::vector<float> x = random_values(n, 11, 50.0f);
  const Quantized first(k(), x, n, 1, n);
  const Quantized second(k(), first.rest, n, 1, n);
  const Quantized want(*all_kernels()[0], x, n, 1, n);
  EXPECT_EQ(want.rest, first.rest);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(first.rest[i], x[i] - first.value(i), 1e-6);
    float max = 0;
    for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) max = std::max(max, std::abs(x[j]));
    ASSERT_LE(std::abs(first.value(i) + second.value(i) - x[i]), max / 64500) << i;
  }
}

}  // namespace
}  // namespace pagefold::kernels::test
