#include <gmock/gmock.h>

#include "kernels/attention_fixture.h"

namespace pagefold::kernels {
namespace {

// The layout of paged.h, written out again: where element d of a slot lies inside its strip's part.
size_t k_at(DType type, int d, int lane) {
  switch (type) {
    case DType::f32:
      return static_cast<size_t>(d * 16 + lane) * 4;
    case DType::f16:
      return static_cast<size_t>(d * 16 + lane) * 2;
    case DType::bf16:
      return static_cast<size_t>((d / 2) * 64 + lane * 4 + (d % 2) * 2);
  }
  return 0;
}

size_t v_at(DType type, int head_dim, int d, int lane) {
  switch (type) {
    case DType::f32:
      return static_cast<size_t>(lane * head_dim + d) * 4;
    case DType::f16:
      return static_cast<size_t>(lane * head_dim + d) * 2;
    case DType::bf16:
      return static_cast<size_t>((lane / 2) * head_dim * 4 + d * 4 + (lane % 2) * 2);
  }
  return 0;
}

void put(DType type, float v, std::byte* at) {
  if (type == DType::f32) {
    std::memcpy(at, &v, 4);
  } else {
    const uint16_t h = type == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
    std::memcpy(at, &h, 2);
  }
}

std::vector<KvLayout> layouts() {
  std::vector<KvLayout> out;
  for (DType k : {DType::f32, DType::f16, DType::bf16})
    for (DType v : {DType::f32, DType::f16, DType::bf16})
      for (int head_dim : {8, 40, 64, 80, 96, 128, 256})
        for (int block : {16, 32, 64}) out.push_back({k, v, head_dim, block});
  return out;
}

// Rows that start and end inside strips, values that are hard to round.
TEST(KvAppend, WritesTheLayoutAndNothingElse) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (const KvLayout& layout : layouts()) {
      SCOPED_TRACE(std::string(isa.name) + " " + describe(layout));
      const int first = 21, rows = 93, slots = 128;
      const std::vector<uint32_t> blocks{5, 0, 7, 2, 1, 6, 3, 4};
      auto k = random_values(static_cast<size_t>(rows * (layout.head_dim + 3)), 1);
      auto v = random_values(static_cast<size_t>(rows * (layout.head_dim + 5)), 2);
      const float hard[] = {0.0f,      -0.0f,   1e-40f,  -3e-39f,    65519.9f,     65520.0f,
                            kInfinity, -1e38f,  3.4e38f, 6e-8f,      1.00390625f,  1.01171875f,
                            2.9e-8f,   3.1e-8f, 6.1e-5f, -kInfinity, 0x1.ffcp-15f, 0x1.ffep-15f};
      for (size_t i = 0; i < std::size(hard); ++i) k[i * 7] = v[i * 11] = hard[i];
      k[3] = v[5] = std::numeric_limits<float>::quiet_NaN();
      Aligned<std::byte> got(8 * layout.block_bytes(), std::byte{0xa5});
      std::vector<std::byte> want(got.data(), got.data() + got.size());
      KvAppendArgs args;
      args.base = got.data();
      args.blocks = blocks.data();
      args.first_slot = first;
      args.rows = rows;
      args.k = k.data();
      args.v = v.data();
      args.ldk = layout.head_dim + 3;
      args.ldv = layout.head_dim + 5;
      isa.kv_append(layout, args);

      ASSERT_LE(first + rows, slots);
      for (int r = 0; r < rows; ++r) {
        const int slot = first + r, lane = slot % 16;
        const int strip = slot % layout.block_size / 16;
        std::byte* at =
            want.data() +
            blocks[static_cast<size_t>(slot / layout.block_size)] * layout.block_bytes() +
            static_cast<size_t>(strip) * layout.strip_bytes();
        for (int d = 0; d < layout.head_dim; ++d) {
          put(layout.k_dtype, k[static_cast<size_t>(r * args.ldk + d)],
              at + k_at(layout.k_dtype, d, lane));
          put(layout.v_dtype, v[static_cast<size_t>(r * args.ldv + d)],
              at + layout.k_strip_bytes() + v_at(layout.v_dtype, layout.head_dim, d, lane));
        }
      }
      ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size()), 0);
    }
  }
}

TEST(KvAppend, RowByRowEqualsAllAtOnce) {
  for (const AttentionIsa& isa : attention_isas()) {
    const KvLayout layout{DType::bf16, DType::bf16, 64, 32};
    PagedCache at_once(layout, 100, 3, isa);
    PagedCache one_by_one(layout, 100, 3, isa);
    std::fill_n(one_by_one.bytes.data(), one_by_one.bytes.size(), std::byte{0xff});
    for (int slot = 99; slot >= 0; --slot) one_by_one.append(isa, slot, 1);
    EXPECT_EQ(std::memcmp(at_once.bytes.data(), one_by_one.bytes.data(), at_once.bytes.size()), 0)
        << isa.name;
  }
}

}  // namespace
}  // namespace pagefold::kernels
