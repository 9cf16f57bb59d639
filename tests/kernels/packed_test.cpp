#include <gtest/gtest.h>

#include "matmul_case.h"

namespace pagefold::kernels::test {
namespace {

TEST(Packed, UnpackIsTheExactInverse) {
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(config.name());
    for (const int n_in :
         config.quantised() ? std::vector{32, 96, 576} : std::vector{1, 7, 33, 64}) {
      const Case c(config, 35, n_in, 1);
      std::vector<float> row(static_cast<size_t>(n_in));
      for (int r = 0; r < c.n_out; ++r) {
        unpack_row(c.matrix, r, row.data());
        for (int k = 0; k < n_in; ++k) {
          const size_t at = static_cast<size_t>(r * n_in + k);
          float want = 0;
          if (!config.quantised()) {
            want = c.weights[at];
          } else {
            const auto q = static_cast<float>(c.q[at]);
            const float s = c.scale_at(r, k / config.group);
            want = config.has_min ? std::fma(q, s, c.min_at(r, k / config.group)) : q * s;
          }
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
  // 16 outputs x 576 inputs: Q4_1 5 bits, Q8_0 8.5 bits, Q6_K as 8 bits + one float a 16.
  const auto bits = [](PackedShape s) {
    EXPECT_EQ(s.tile_bytes() % 64, 0u);
    return 8.0 * static_cast<double>(s.bytes()) / s.n_out / s.n_in;
  };
  EXPECT_EQ(bits({PackKind::w4, 32, 576, 32, true, true}), 5.0);
  EXPECT_EQ(bits({PackKind::w4, 32, 576, 32, false, true}), 4.5);
  EXPECT_EQ(bits({PackKind::w8, 49152, 576, 32, false, true}), 8.5);
  EXPECT_EQ(bits({PackKind::w8, 32, 576, 16, false, false}), 10.0);
  EXPECT_EQ(bits({PackKind::bf16, 32, 576}), 16.0);
  EXPECT_EQ(bits({PackKind::f16, 32, 576}), 16.0);
  EXPECT_EQ(bits({PackKind::f32, 32, 576}), 32.0);
  // An odd number of 32-byte scale lines costs one unused half line a tile, no more.
  EXPECT_EQ((PackedShape{PackKind::w8, 16, 96, 32, false, true}).tile_bytes(), 3u * 512 + 128);
  EXPECT_EQ((PackedShape{PackKind::f16, 17, 7}).bytes(), 2u * 256);
}

TEST(PackedDeathTest, RefusesWhatWouldLoseBits) {
  const PackedShape shape{PackKind::w4, 1, 32, 32, false, true};
  Aligned data(shape.bytes());
  std::vector<int8_t> q(32, 16);
  float scale = 1;
  EXPECT_DEATH(pack_row_quant(shape, 0, {q.data(), &scale, nullptr}, data.data), "outside 0..15");
  q.assign(32, 3);
  scale = 0.1f;
  EXPECT_DEATH(pack_row_quant(shape, 0, {q.data(), &scale, nullptr}, data.data), "float16");
}

}  // namespace
}  // namespace pagefold::kernels::test
