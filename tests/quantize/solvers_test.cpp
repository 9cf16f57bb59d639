// GPTQ and AWQ against plain rounding, and the linear algebra against long-hand sums.
#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "base/random.h"
#include "quantize/awq.h"
#include "quantize/gptq.h"

namespace pagefold {
namespace {

float normal(uint64_t stream, uint64_t i) {
  const double u = uniform01(stream, 2 * i) + 1e-12, v = uniform01(stream, 2 * i + 1);
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v));
}
std::vector<float> normals(uint64_t stream, int64_t n, float scale = 1) {
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(scale * normal(stream, static_cast<uint64_t>(i)));
  return out;
}

// Calibration rows whose columns depend on each other and differ in size, as activations do.
struct Inputs {
  Inputs(int64_t rows_in, int64_t k_in, uint64_t seed) : rows(rows_in), k(k_in) {
    const int64_t factors = k / 4;
    const auto base = normals(seed, rows * factors), mix = normals(seed + 1, factors * k);
    const auto noise = normals(seed + 2, rows * k);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < k; ++c) {
        float sum = 0.3f * noise[static_cast<size_t>(r * k + c)];
        for (int64_t f = 0; f < factors; ++f)
          sum += base[static_cast<size_t>(r * factors + f)] * mix[static_cast<size_t>(f * k + c)];
        x.push_back(sum * (c % 17 == 3 ? 12.0f : 1.0f));  // a few channels stand out
      }
    }
  }
  LinearInputs products() const {
    LinearInputs in;
    in.width = k;
    in.rows = rows;
    in.products.assign(static_cast<size_t>(k * k), 0);
    in.magnitude.assign(static_cast<size_t>(k), 0);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < k; ++i) {
        const float v = x[static_cast<size_t>(r * k + i)];
        in.magnitude[static_cast<size_t>(i)] += std::abs(double{v});
        for (int64_t j = 0; j < k; ++j)
          in.products[static_cast<size_t>(i * k + j)] += v * x[static_cast<size_t>(r * k + j)];
      }
    }
    return in;
  }
  // Squared error of the outputs.
  double error(const Matrix& a, const Matrix& b) const {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < a.rows; ++n) {
        double y = 0;
        for (int64_t i = 0; i < k; ++i)
          y += double{x[static_cast<size_t>(r * k + i)]} * double{a.row(n)[i] - b.row(n)[i]};
        sum += y * y;
      }
    }
    return sum;
  }
  int64_t rows, k;
  std::vector<float> x;
};

TEST(LinearAlgebra, ProductsOfEveryIsaAndOddSizes) {
  ThreadPool pool(2);
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    SCOPED_TRACE(isa);
    const LinearAlgebra math(isa, pool);
    const int64_t m = 37, n = 45, k = 700;
    const auto a = normals(1, m * k), b = normals(2, k * n);
    std::vector<float> c(static_cast<size_t>(m * n), 1.0f), at(static_cast<size_t>(m * k));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t r = 0; r < k; ++r)
        at[static_cast<size_t>(r * m + i)] = a[static_cast<size_t>(i * k + r)];
    }
    std::vector<float> d = c;
    math.add_product(m, n, k, -2.0f, a.data(), k, b.data(), n, c.data(), n);
    math.add_transposed_product(m, n, k, at.data(), m, b.data(), n, d.data(), n);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double want = 0;
        for (int64_t r = 0; r < k; ++r)
          want +=
              double{a[static_cast<size_t>(i * k + r)]} * double{b[static_cast<size_t>(r * n + j)]};
        EXPECT_NEAR(double{c[static_cast<size_t>(i * n + j)]}, 1 - 2 * want, 1e-3);
        EXPECT_NEAR(double{d[static_cast<size_t>(i * n + j)]}, 1 + want, 1e-3);
      }
    }
  }
}

TEST(LinearAlgebra, TheFactorTimesItsTransposeIsTheInverse) {
  for (const int64_t n : {1, 7, 64, 150}) {
    SCOPED_TRACE(n);
    std::vector<float> h(static_cast<size_t>(n * n));
    const auto x = normals(9, 2 * n * n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        float sum = i == j ? 0.1f * static_cast<float>(n) : 0;
        for (int64_t r = 0; r < 2 * n; ++r)
          sum += x[static_cast<size_t>(r * n + i)] * x[static_cast<size_t>(r * n + j)];
        h[static_cast<size_t>(i * n + j)] = sum;
      }
    }
    std::vector<float> results[2];
    for (const int threads : {1, 2}) {
      ThreadPool pool(threads);
      const auto u = LinearAlgebra("auto", pool).inverse_factor(h, n);
      ASSERT_TRUE(u.ok()) << u.status();
      results[threads - 1] = *u;
    }
    EXPECT_EQ(results[0], results[1]);  // whatever the number of threads
    const std::vector<float>& u = results[0];
    std::vector<double> inverse(u.size());
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        if (j < i) {
          EXPECT_EQ(u[static_cast<size_t>(i * n + j)], 0.0f);
        }
        for (int64_t r = 0; r <= std::min(i, j); ++r)
          inverse[static_cast<size_t>(i * n + j)] +=
              double{u[static_cast<size_t>(r * n + i)]} * double{u[static_cast<size_t>(r * n + j)]};
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double unit = 0;
        for (int64_t a = 0; a < n; ++a)
          unit +=
              double{h[static_cast<size_t>(i * n + a)]} * inverse[static_cast<size_t>(a * n + j)];
        ASSERT_NEAR(unit, i == j ? 1 : 0, 2e-4) << i << " " << j;
      }
    }
  }
}

TEST(LinearAlgebra, WhatIsNotPositiveDefiniteIsAnError) {
  ThreadPool pool(1);
  EXPECT_FALSE(LinearAlgebra("auto", pool).inverse_factor({1, 2, 2, 1}, 2).ok());
}

class Gptq : public ::testing::TestWithParam<std::tuple<int, bool, bool>> {};

TEST_P(Gptq, LosesLessThanRounding) {
  const auto [bits, symmetric, act_order] = GetParam();
  const Inputs in(192, 160, 11);  // two blocks of columns
  const Matrix w{24, 160, normals(5, 24 * 160, 0.05f)};
  ThreadPool pool(2);
  const LinearAlgebra math("auto", pool);
  GptqOptions o;
  o.rule.bits = bits;
  o.rule.symmetric = symmetric;
  o.group = 32;
  o.act_order = act_order;
  const auto inputs = gptq_inputs(in.products().products, 160, o, math);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const IntWeights q = gptq(w, *inputs, o, math);
  const double ours = in.error(w, int_values(q));
  const double plain = in.error(w, int_values(round_to_nearest(w, 32, o.rule)));
  EXPECT_LT(ours, (bits == 2 ? 0.8 : 0.5) * plain);
  for (const uint8_t v : q.q) ASSERT_LT(v, 1 << bits);
  if (act_order) {
    std::vector<int> seen(5);
    for (const int32_t g : q.g_idx) ++seen[static_cast<size_t>(g)];
    EXPECT_EQ(seen, std::vector<int>(5, 32));
    EXPECT_EQ(q.g_idx[3], 0);  // a channel that stands out goes first
  } else {
    EXPECT_TRUE(q.g_idx.empty());
  }
}
INSTANTIATE_TEST_SUITE_P(All, Gptq,
                         ::testing::Combine(::testing::Values(2, 3, 4, 8), ::testing::Bool(),
                                            ::testing::Bool()));

TEST(GptqInputs, SilentInputsDoNoHarm) {
  ThreadPool pool(1);
  const LinearAlgebra math("auto", pool);
  GptqOptions o;
  o.group = 32;
  const Matrix w{4, 32, normals(5, 128)};
  const auto inputs = gptq_inputs(std::vector<float>(1024, 0.0f), 32, o, math);
  ASSERT_TRUE(inputs.ok());
  EXPECT_EQ(int_values(gptq(w, *inputs, o, math)).values.size(), 128u);
  std::vector<float> bad(1024, NAN);
  EXPECT_FALSE(gptq_inputs(bad, 32, o, math).ok());
}

TEST(Awq, LosesLessThanRounding) {
  const Inputs in(160, 128, 21);
  const Matrix w{40, 128, normals(6, 40 * 128, 0.05f)};
  ThreadPool pool(2);
  const LinearAlgebra math("auto", pool);
  AwqOptions o;
  o.group = 32;
  const LinearInputs products = in.products();
  const Matrix* list[] = {&w};
  const std::vector<float> s = awq_scales(list, products, {}, o, math);
  EXPECT_GT(s[3], s[4]);  // the loud channel gets the finer steps
  double errors[2];
  for (const bool clip : {false, true}) {
    Matrix scaled = w;
    for (int64_t r = 0; r < 40; ++r) {
      for (int64_t i = 0; i < 128; ++i) scaled.row(r)[i] *= s[static_cast<size_t>(i)];
    }
    Matrix back = int_values(awq_round(scaled, s, products, clip, o, math));
    for (int64_t r = 0; r < 40; ++r) {
      for (int64_t i = 0; i < 128; ++i) back.row(r)[i] /= s[static_cast<size_t>(i)];
    }
    errors[clip] = in.error(w, back);
  }
  const double plain = in.error(w, int_values(round_to_nearest(w, 32, {.bits = 4})));
  EXPECT_LT(errors[0], 0.8 * plain);
  EXPECT_LT(errors[1], errors[0]);
}

TEST(Awq, TiedInputsShareTheirScale) {
  const Inputs in(96, 64, 31);
  const Matrix w{16, 64, normals(7, 16 * 64)};
  ThreadPool pool(1);
  const LinearAlgebra math("auto", pool);
  AwqOptions o;
  o.group = 32;
  std::vector<int32_t> tied;
  for (int32_t i = 0; i < 64; ++i) tied.push_back(i % 16);
  const Matrix* list[] = {&w};
  const std::vector<float> s = awq_scales(list, in.products(), tied, o, math);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(s[i], s[i % 16]);
}

}  // namespace
}  // namespace pagefold
