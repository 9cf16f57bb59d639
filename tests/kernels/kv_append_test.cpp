#include <cmath>

#include "kernels/attention_fixture.h"

namespace pagefold::kernels {
namespace {

// The scale and zero point of n numbers, as float16 numbers.
struct Scale {
  float scale = 0, zero = 0;
};
Scale scale_of(DType type, const float* x, int n) {
  float lo = 0, hi = 0;
  for (int i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return {NAN, 0};
    lo = std::min(lo, x[i]), hi = std::max(hi, x[i]);
  }
  const auto half = [](float v) { return f16_to_f32(f32_to_f16(std::min(v, 65504.0f))); };
  if (type == DType::int8) return {half(std::max(hi, -lo) / 127), 0};
  const float scale = half((hi / 2 - lo / 2) / 7.5f);
  return {scale, scale == 0 ? 0.0f : half(std::min(-lo / scale, 15.0f))};
}

// Writes one slot of a strip; returns the elements that saturated.
uint64_t put_slot(const StripMap& map, bool keys, const float* x, float fp8_scale, int s,
                  std::byte* strip) {
  const DType type = map.type(keys);
  uint64_t saturated = 0;
  for (int d = 0; d < map.l.head_dim; ++d) {
    uint32_t word = 0;
    bool cut = false;
    switch (type) {
      case DType::f32:
        std::memcpy(&word, x + d, 4);
        break;
      case DType::f16:
        word = f32_to_f16(x[d]);
        break;
      case DType::bf16:
        word = f32_to_bf16(x[d]);
        break;
      case DType::fp8_e4m3:
      case DType::fp8_e5m2:
        word = fp8_code(type, x[d] / fp8_scale, &cut);
        break;
      case DType::int8:
      case DType::int4: {
        const int first = map.l.group == 0 ? 0 : d / map.l.group * map.l.group;
        const int n =
            map.l.group == 0 ? map.l.head_dim : std::min(map.l.group, map.l.head_dim - first);
        const Scale of = scale_of(type, x + first, n);
        const float q = of.scale > 0 ? std::nearbyint(x[d] / of.scale + of.zero) : 0.0f;
        const int code = static_cast<int>(type == DType::int8 ? std::clamp(q, -127.0f, 127.0f)
                                                              : std::clamp(q, 0.0f, 15.0f));
        word = static_cast<uint32_t>(type == DType::int8 && keys ? code + 128 : code) & 0xffu;
        const uint16_t scale = f32_to_f16(of.scale), zero = f32_to_f16(of.zero);
        std::memcpy(strip + map.scale_at(keys, map.group_of(d), s), &scale, 2);
        if (type == DType::int4)
          std::memcpy(strip + map.zero_at(keys, map.group_of(d), s), &zero, 2);
        break;
      }
    }
    map.put_raw(strip, keys, d, s, word);
    saturated += cut ? 1 : 0;
  }
  return saturated;
}

std::vector<KvLayout> layouts() {
  std::vector<KvLayout> out;
  for (DType k : kAllTypes)
    for (DType v : kAllTypes)
      for (int head_dim : {8, 40, 64, 80, 96, 128, 256})
        if (worth_testing(k, v, head_dim))
          for (const KvLayout& layout : with_groups({k, v, head_dim, 16 << (head_dim / 8 % 3)}))
            out.push_back(layout);
  return out;
}

std::vector<float> hard_values(int n, uint32_t seed) {
  auto x = random_values(static_cast<size_t>(n), seed);
  const float hard[] = {0.0f,      -0.0f,   1e-40f,  -3e-39f,    65519.9f,     65520.0f,
                        kInfinity, -1e38f,  3.4e38f, 6e-8f,      1.00390625f,  1.01171875f,
                        2.9e-8f,   3.1e-8f, 6.1e-5f, -kInfinity, 0x1.ffcp-15f, 0x1.ffep-15f,
                        448.0f,    464.0f,  464.1f,  -61440.0f,  57344.0f,     0x1.8p-9f,
                        0x1p-10f,  0x3p-11f};
  for (size_t i = 0; i < std::size(hard); ++i) x[i * 7] = hard[i];
  x[3] = std::numeric_limits<float>::quiet_NaN();
  return x;
}

// Rows that start and end inside strips, values that are hard to round.
TEST(KvAppend, WritesTheLayoutAndNothingElse) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (const KvLayout& layout : layouts()) {
      SCOPED_TRACE(std::string(isa.name) + " " + describe(layout));
      const int first = 21, rows = 43, slots = 64;
      const std::vector<uint32_t> blocks{3, 0, 2, 1};
      const auto k = hard_values(rows * (layout.head_dim + 3), 1);
      const auto v = hard_values(rows * (layout.head_dim + 5), 2);
      Aligned<std::byte> got(4 * layout.block_bytes(), std::byte{0xa5});
      std::vector<std::byte> want(got.data(), got.data() + got.size());
      uint64_t saturated = 5, want_saturated = 5;
      KvAppendArgs args;
      args.base = got.data();
      args.blocks = blocks.data();
      args.first_slot = first;
      args.rows = rows;
      args.k = k.data();
      args.v = v.data();
      args.ldk = layout.head_dim + 3;
      args.ldv = layout.head_dim + 5;
      args.k_scale = 0.75f;
      args.v_scale = 1.25f;
      args.saturated = &saturated;
      isa.kv_append(layout, args);

      ASSERT_LE(first + rows, slots);
      const StripMap map{layout};
      for (int r = 0; r < rows; ++r) {
        const int slot = first + r;
        std::byte* strip =
            want.data() +
            blocks[static_cast<size_t>(slot / layout.block_size)] * layout.block_bytes() +
            static_cast<size_t>(slot % layout.block_size / 16) * layout.strip_bytes();
        want_saturated += put_slot(map, true, args.k + r * args.ldk, 0.75f, slot % 16, strip);
        want_saturated += put_slot(map, false, args.v + r * args.ldv, 1.25f, slot % 16, strip);
      }
      ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size()), 0);
      ASSERT_EQ(saturated, want_saturated);
      args.saturated = nullptr;
      isa.kv_append(layout, args);
    }
  }
}

struct StoreCase {
  bool e4m3;
  float scale, x;
  unsigned code;
  float restored;
};
constexpr StoreCase kStoreCases[] = {
#include "fp8_store_cases.inc"
};

// Each case is a token, as key and as value.
TEST(KvAppend, StoresTheCasesOfFp8) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (size_t i = 0; i < std::size(kStoreCases); ++i) {
      const StoreCase& c = kStoreCases[i];
      const DType type = c.e4m3 ? DType::fp8_e4m3 : DType::fp8_e5m2;
      const KvLayout layout{type, type, 8, 16};
      const std::vector<float> row(8, c.x);
      const uint32_t block = 0;
      const int slot = static_cast<int>(i % 16);
      Aligned<std::byte> got(layout.block_bytes(), std::byte{0});
      std::vector<std::byte> want(layout.block_bytes(), std::byte{0});
      KvAppendArgs args;
      args.base = got.data();
      args.blocks = &block;
      args.first_slot = slot;
      args.rows = 1;
      args.k = args.v = row.data();
      args.ldk = args.ldv = 8;
      args.k_scale = args.v_scale = c.scale;
      isa.kv_append(layout, args);
      const StripMap map{layout};
      for (int d = 0; d < 8; ++d)
        for (const bool keys : {true, false}) map.put_raw(want.data(), keys, d, slot, c.code);
      ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size()), 0) << isa.name << " case " << i;
      ASSERT_EQ(fp8_value(type, c.code) * c.scale, c.restored) << i;
    }
  }
}

// A round trip is within half a step; a row of one sign, or of nothing, too.
TEST(KvAppend, IntegersKeepHalfAStep) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (const DType type : {DType::int8, DType::int4}) {
      for (const KvLayout& layout : with_groups({type, type, 80, 16})) {
        SCOPED_TRACE(std::string(isa.name) + " " + describe(layout));
        PagedCache cache(layout, 48, 3, isa);
        for (int d = 0; d < 80; ++d) {
          cache.k[static_cast<size_t>(d)] = 3.0f + 0.01f * static_cast<float>(d);
          cache.v[static_cast<size_t>(d)] = 0.0f;
          cache.k[static_cast<size_t>(80 + d)] = -7.5f;
          cache.v[static_cast<size_t>(80 + d)] = d == 40 ? 1e6f : 1.0f;
        }
        cache.append(isa, 0, 48);
        cache.read_back();
        for (int s = 0; s < 48; ++s) {
          for (int d = 0; d < 80; ++d) {
            const auto at = static_cast<size_t>(s * 80 + d);
            for (bool keys : {true, false}) {
              const float x = keys ? cache.k[at] : cache.v[at];
              ASSERT_NEAR(cache.stored(keys, s, d), x,
                          0.51 * cache.scale(keys, s, d) + 2e-3 * std::abs(x))
                  << "slot " << s << " dim " << d;
            }
          }
        }
      }
    }
  }
}

// Only the group that holds a NaN or an infinity is lost, and it is seen to be.
TEST(KvAppend, NanFillsItsGroup) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (const DType type : {DType::int8, DType::int4}) {
      PagedCache cache({type, type, 64, 16, 32}, 16, 3, isa);
      cache.k[5] = NAN;
      cache.v[33] = -kInfinity;
      cache.append(isa, 0, 16);
      cache.read_back();
      for (int d = 0; d < 64; ++d) {
        EXPECT_EQ(std::isnan(cache.stored(true, 0, d)), d < 32) << isa.name;
        EXPECT_EQ(std::isnan(cache.stored(false, 0, d)), d >= 32) << isa.name;
        EXPECT_FALSE(std::isnan(cache.stored(true, 1, d)));
      }
    }
  }
}

TEST(KvAppend, RowByRowEqualsAllAtOnce) {
  for (const AttentionIsa& isa : attention_isas()) {
    for (DType type : kAllTypes) {
      const KvLayout layout{type, type, 64, 32};
      PagedCache at_once(layout, 100, 3, isa);
      PagedCache one_by_one(layout, 100, 3, isa);
      std::fill_n(one_by_one.bytes.data(), one_by_one.bytes.size(), std::byte{0xff});
      for (int slot = 99; slot >= 0; --slot) one_by_one.append(isa, slot, 1);
      EXPECT_EQ(std::memcmp(at_once.bytes.data(), one_by_one.bytes.data(), at_once.bytes.size()), 0)
          << isa.name << " " << describe(layout);
    }
  }
}

}  // namespace
}  // namespace pagefold::kernels
