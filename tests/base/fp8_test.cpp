#include "base/fp8.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pagefold {
namespace {

// The definition of the formats, in double precision.
double defined(bool e4m3, unsigned code) {
  const int bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int exponent = static_cast<int>((code & 127u) >> bits);
  const double mantissa = (code & ((1u << bits) - 1)) / double(1 << bits);
  const double sign = (code & 128u) ? -1 : 1;
  if (e4m3 && (code & 127u) == 127) return NAN;
  if (!e4m3 && exponent == 31) return mantissa > 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(mantissa, 1 - bias)
                               : std::ldexp(1 + mantissa, exponent - bias));
}

TEST(Fp8, EveryCodeDecodesAndSurvivesARoundTrip) {
  for (unsigned c = 0; c < 256; ++c) {
    const auto code = static_cast<uint8_t>(c);
    const float a = e4m3_to_f32(code), b = e5m2_to_f32(code);
    if (std::isnan(defined(true, c))) {
      EXPECT_TRUE(std::isnan(a));
      EXPECT_EQ(f32_to_e4m3(a) & 0x7f, 0x7f);
    } else {
      EXPECT_EQ(a, defined(true, c)) << c;
      EXPECT_EQ(f32_to_e4m3(a), code);
    }
    if (std::isnan(defined(false, c))) {
      EXPECT_TRUE(std::isnan(b));
      EXPECT_EQ(f32_to_e5m2(b) & 0x7f, 0x7f);
    } else {
      EXPECT_EQ(b, defined(false, c)) << c;
      if (!std::isinf(b)) {
        EXPECT_EQ(f32_to_e5m2(b), code);
      }
    }
  }
  EXPECT_TRUE(std::signbit(e4m3_to_f32(0x80)));
  EXPECT_EQ(f32_to_e5m2(INFINITY), 0x7b);
}

struct Case {
  bool e4m3;
  double x;
  int code;
};
constexpr Case kCases[] = {
#include "fp8_cases.inc"
};

TEST(Fp8, KnownConversions) {
  for (const Case& c : kCases) {
    const auto x = static_cast<float>(c.x);
    EXPECT_EQ(c.e4m3 ? f32_to_e4m3(x) : f32_to_e5m2(x), c.code) << c.e4m3 << " " << c.x;
  }
}

// Between every two neighbours: below, at and above the middle.
TEST(Fp8, RoundsToNearestEven) {
  for (const bool e4m3 : {true, false}) {
    const unsigned largest = e4m3 ? 0x7e : 0x7b;
    const auto encode = [e4m3](double x) {
      return static_cast<unsigned>(e4m3 ? f32_to_e4m3(static_cast<float>(x))
                                        : f32_to_e5m2(static_cast<float>(x)));
    };
    for (unsigned c = 0; c < largest; ++c) {
      const double middle = (defined(e4m3, c) + defined(e4m3, c + 1)) / 2;
      EXPECT_EQ(encode(middle * (1 - 0x1p-20)), c);
      EXPECT_EQ(encode(middle * (1 + 0x1p-20)), c + 1);
      EXPECT_EQ(encode(middle), c % 2 == 0 ? c : c + 1);
      EXPECT_EQ(encode(-middle), 0x80u | (c % 2 == 0 ? c : c + 1));
    }
    EXPECT_EQ(encode(1e-30), 0u);
  }
}

TEST(Fp8, SaysWhatItCut) {
  bool cut = true;
  EXPECT_EQ(f32_to_e4m3(464.0f, &cut), 0x7e);
  EXPECT_FALSE(cut);
  EXPECT_EQ(f32_to_e4m3(464.1f, &cut), 0x7e);
  EXPECT_TRUE(cut);
  EXPECT_EQ(f32_to_e4m3(-INFINITY, &cut), 0xfe);
  EXPECT_TRUE(cut);
  EXPECT_EQ(f32_to_e4m3(NAN, &cut) & 0x7f, 0x7f);
  EXPECT_FALSE(cut);
  EXPECT_EQ(f32_to_e5m2(61439.0f, &cut), 0x7b);
  EXPECT_FALSE(cut);
  EXPECT_EQ(f32_to_e5m2(61440.0f, &cut), 0x7b);
  EXPECT_TRUE(cut);
}

}  // namespace
}  // namespace pagefold
