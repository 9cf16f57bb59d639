// e4m3 weights: every code, in every kernel, against the recorded table.
#include <gtest/gtest.h>

#include "e4m3_values.h"
#include "kernels/packed_fp8.h"
#include "matmul_case.h"
#include "tests_isa.h"

namespace pagefold::kernels::test {
namespace {

class Fp8 : public ::testing::TestWithParam<const Kernels*> {};
INSTANTIATE_TEST_SUITE_P(Isa, Fp8, ::testing::ValuesIn(all_kernels()), isa_name);

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Output o has code o as one weight and 1.0 as the others.
struct AllCodes {
  explicit AllCodes(int group)
      : shape(Config{PackKind::fp8, InputKind::f32, group}.shape(256, 64)), data(shape.bytes()) {
    const std::vector<float> scale(4, 1.0f);
    for (int o = 0; o < 256; ++o) {
      std::vector<int8_t> q(64, 0x38);
      q[static_cast<size_t>(input_of(o))] = static_cast<int8_t>(o);
      pack_row_quant(shape, o, {q.data(), scale.data(), nullptr}, data.data);
    }
  }
  static int input_of(int output) { return output % 61; }
  PackedShape shape;
  Aligned data;
};

TEST(Fp8Table, DecodesEveryCode) {
  for (int c = 0; c < 256; ++c) {
    const auto code = static_cast<uint8_t>(c);
    EXPECT_TRUE(same(e4m3_value(code), kE4m3Values[code])) << c;
    EXPECT_TRUE(same(e4m3_value(fp8_from_packed(fp8_to_packed(code))), kE4m3Values[code])) << c;
  }
}

TEST(Fp8Table, UnpacksEveryCode) {
  for (const int group : {16, 64}) {
    const AllCodes m(group);
    for (int o = 0; o < 256; ++o) {
      float row[64];
      unpack_row({m.shape, m.data.data, nullptr}, o, row);
      for (int k = 0; k < 64; ++k) {
        const float want = k == AllCodes::input_of(o) ? kE4m3Values[static_cast<size_t>(o)] : 1.0f;
        ASSERT_TRUE(same(row[k], want)) << "code " << o << " input " << k << ": " << row[k];
      }
    }
  }
}

// Inputs that pick one weight: the product is that weight, to the bit.
TEST_P(Fp8, EveryCodeIsExactInAProduct) {
  for (const int group : {16, 32, 64}) {
    const AllCodes m(group);
    const PackedMatrix matrix{m.shape, m.data.data, nullptr};
    std::vector<float> x(64 * 64, 0.0f), y(64 * 256);
    for (size_t k = 0; k < 64; ++k) x[k * 65] = 1;
    MatmulArgs a;
    a.weights = &matrix;
    a.x = x.data();
    a.ldx = 64;
    a.rows = 64;
    a.y = y.data();
    a.ldy = 256;
    a.tile_end = m.shape.tiles();
    GetParam()->matmul(a);
    for (int o = 0; o < 256; ++o) {
      const float code = kE4m3Values[static_cast<size_t>(o)];
      for (int k = 0; k < 64; ++k) {
        // NaN, and nothing else, reaches the products that do not pick it.
        const float want = k == AllCodes::input_of(o) || std::isnan(code) ? code : 1.0f;
        const float got = y[static_cast<size_t>(k * 256 + o)];
        ASSERT_TRUE(same(got, want)) << "code " << o << " input " << k << " group " << group << ": "
                                     << got << " for " << want;
      }
    }
  }
}

}  // namespace
}  // namespace pagefold::kernels::test
