#include <gtest/gtest.h>

#include "matmul_case.h"

namespace pagefold::kernels::test {
namespace {

TEST(Packed, UnpackIsTheExactInverse) {
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(config.name());
    for (const int n_in : config.widths()) {
      const Case c(config, 35, n_in, 1);
      std::vector<float> row(static_cast<size_t>(n_in));
      for (int r = 0; r < c.n_out; ++r) {
        unpack_row(c.matrix, r, row.data());
        for (int k = 0; k < n_in; ++k) {
          const float want =
              config.quantised() ? c.weight_at(r, k) : c.weights[static_cast<size_t>(r * n_in + k)];
          ASSERT_EQ(row[static_cast<size_t>(k)], want) << "row " << r << " input " << k;
        }
      }
    }
  }
}

TEST(Packed, RowsMayBePackedInAnyOrder) {
  const Config config{PackKind::w4, InputKind::i8, 16, true, false};
  const Case c(config, 16, 64, 1);
  Aligned other(c.shape.bytes());
  for (int r = 15; r >= 0; --r) {
    const auto at = static_cast<size_t>(r);
    pack_row_quant(c.shape, r,
                   {c.q.data() + at * 64, c.scale.data() + at * 4, c.min.data() + at * 4},
                   other.data);
  }
  EXPECT_TRUE(std::equal(other.data, other.data + other.bytes, c.packed->data));
}

TEST(Packed, SizesAreWhatTheFormatsCost) {
  const auto bits = [](const Config& c, int n_out = 32, int n_in = 576) {
    const PackedShape s = c.shape(n_out, n_in);
    EXPECT_EQ(s.tile_bytes() % 64, 0u);
    return 8.0 * static_cast<double>(s.bytes()) / s.n_out / s.n_in;
  };
  constexpr InputKind f = InputKind::f32;
  // 16 outputs x 576 inputs: Q4_1 5 bits, Q8_0 8.5 bits, Q6_K as 8 bits + one float a 16.
  EXPECT_EQ(bits({PackKind::w4, f, 32, true}), 5.0);
  EXPECT_EQ(bits({PackKind::w4, f, 32}), 4.5);
  EXPECT_EQ(bits({PackKind::w8, f, 32}, 49152), 8.5);
  EXPECT_EQ(bits({PackKind::w8, f, 16, false, false}), 10.0);
  EXPECT_EQ(bits({PackKind::bf16, f}), 16.0);
  EXPECT_EQ(bits({PackKind::f16, f}), 16.0);
  EXPECT_EQ(bits({PackKind::f32, f}), 32.0);
  // AWQ and GPTQ with and without zero points, nf4 with float32 block maxima, fp8 with a scale a
  // row.
  EXPECT_EQ(bits({PackKind::w4, f, 64, false, true, true}), 4.5);
  EXPECT_EQ(bits({PackKind::w4, f, 128, false, true, true}, 32, 1536), 4.25);
  EXPECT_EQ(bits({PackKind::w4, f, 128}, 32, 1536), 4.125);
  EXPECT_EQ(bits({PackKind::w8, f, 64, false, false, true}), 9.0);
  EXPECT_EQ(bits({PackKind::t4, f, 64, false, false}), 4.5);
  EXPECT_EQ(bits({PackKind::fp8, f, 1024, false, false}, 32, 1024), 8 + 32.0 / 1024);
  // An odd number of 32-byte scale lines costs one unused half line a tile, no more.
  EXPECT_EQ(Config({PackKind::w8, f, 32}).shape(16, 96).tile_bytes(), 3u * 512 + 128);
  EXPECT_EQ(Config({PackKind::w4, f, 96}).shape(16, 96).tile_bytes(), 3u * 256 + 64);
  EXPECT_EQ(Config({PackKind::f16, f}).shape(17, 7).bytes(), 2u * 256);
}

// The example of docs/precision.md: (12 - 8) x 0.05 = 0.2.
TEST(Packed, AZeroPointIsSubtractedBeforeScaling) {
  for (const int group : {32, 64}) {
    const PackedShape shape =
        Config({PackKind::w4, InputKind::f32, group, false, false, true}).shape(1, group);
    Aligned data(shape.bytes());
    std::vector<int8_t> q(static_cast<size_t>(group), 8);
    q[3] = 12;
    const float scale = 0.05f, zero = 8;
    pack_row_quant(shape, 0, {q.data(), &scale, &zero}, data.data);
    std::vector<float> row(q.size());
    unpack_row({shape, data.data, nullptr}, 0, row.data());
    for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(row[i], i == 3 ? 0.2f : 0.0f);
  }
}

TEST(Packed, Int8InputsNeedWeightsThatAreIntegers) {
  EXPECT_TRUE(takes_int8(PackKind::w4, nullptr));
  EXPECT_TRUE(takes_int8(PackKind::w8, nullptr));
  EXPECT_TRUE(takes_int8(PackKind::t4, kIntegerTable.data()));
  EXPECT_FALSE(takes_int8(PackKind::t4, kFloatTable.data()));
  EXPECT_FALSE(takes_int8(PackKind::fp8, nullptr));
  EXPECT_FALSE(takes_int8(PackKind::bf16, nullptr));
  std::array<float, 16> table = kIntegerTable;
  table[3] = 128;
  EXPECT_FALSE(takes_int8(PackKind::t4, table.data()));
  table[3] = NAN;
  EXPECT_FALSE(takes_int8(PackKind::t4, table.data()));
}

TEST(PackedDeathTest, RefusesWhatWouldLoseBits) {
  const PackedShape shape = Config({PackKind::w4, InputKind::f32}).shape(1, 32);
  Aligned data(shape.bytes());
  std::vector<int8_t> q(32, 16);
  float scale = 1;
  EXPECT_DEATH(pack_row_quant(shape, 0, {q.data(), &scale, nullptr}, data.data), "outside 0..15");
  q.assign(32, 3);
  scale = 0.1f;
  EXPECT_DEATH(pack_row_quant(shape, 0, {q.data(), &scale, nullptr}, data.data), "float16");
  const PackedShape zeros =
      Config({PackKind::w4, InputKind::f32, 32, false, true, true}).shape(1, 32);
  float zero = 8.5f;
  scale = 0.5f;
  EXPECT_DEATH(pack_row_quant(zeros, 0, {q.data(), &scale, &zero}, data.data), "zero point");
}

}  // namespace
}  // namespace pagefold::kernels::test
