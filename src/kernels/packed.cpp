#include "kernels/packed.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "kernels/packed_layout.h"

namespace pagefold::kernels {
namespace {

size_t round_up_64(size_t n) { return (n + 63) / 64 * 64; }

bool quantised(PackKind k) { return k == PackKind::w8 || k == PackKind::w4; }

void check_shape(const PackedShape& s) {
  PF_CHECK(s.n_out >= 0 && s.n_in > 0);
  if (quantised(s.kind)) {
    PF_CHECK(s.n_in % kBlockInputs == 0, "quantised weights come in blocks of 32 inputs");
    PF_CHECK(s.group == 16 || s.group == 32);
  }
}

void store_meta(std::byte* line, bool f16, int lane, float v) {
  if (f16) {
    const uint16_t h = f32_to_f16(v);
    PF_CHECK(f16_to_f32(h) == v || v != v, "a scale is not a float16 number, but is said to be");
    std::memcpy(line + lane * 2, &h, 2);
  } else {
    std::memcpy(line + lane * 4, &v, 4);
  }
}

float load_meta(const std::byte* line, bool f16, int lane) {
  if (f16) {
    uint16_t h;
    std::memcpy(&h, line + lane * 2, 2);
    return f16_to_f32(h);
  }
  float v;
  std::memcpy(&v, line + lane * 4, 4);
  return v;
}

// Byte of a block's values that holds input i of `lane`; for w4 two inputs share it.
size_t value_byte(PackKind kind, int i, int lane) {
  const int k = kind == PackKind::w4 ? i % 16 : i;
  return static_cast<size_t>(k / 4 * 64 + lane * 4 + k % 4);
}

std::byte* tile_of(const PackedShape& s, int row, std::byte* data) {
  PF_CHECK(row >= 0 && row < s.n_out);
  return data + s.tile_bytes() * static_cast<size_t>(row / kTileRows);
}

}  // namespace

size_t PackedShape::tile_bytes() const {
  check_shape(*this);
  const auto n = static_cast<size_t>(n_in);
  switch (kind) {
    case PackKind::f32:
      return n * kTileRows * 4;
    case PackKind::f16:
      return round_up_64(n * kTileRows * 2);
    case PackKind::bf16:
      return (n + 1) / 2 * kTileRows * 4;
    case PackKind::w8:
    case PackKind::w4:
      break;
  }
  const BlockLayout l = block_layout(*this);
  const size_t blocks = n / kBlockInputs;
  const size_t units = (blocks + (size_t{1} << l.unit_shift) - 1) >> l.unit_shift;
  return units * l.unit_meta + blocks * l.values_bytes;
}

void pack_row_f32(const PackedShape& shape, int row, const float* values, std::byte* data) {
  check_shape(shape);
  std::byte* tile = tile_of(shape, row, data);
  const auto lane = static_cast<size_t>(row % kTileRows);
  for (size_t k = 0; k < static_cast<size_t>(shape.n_in); ++k) {
    const size_t at = k * kTileRows + lane;
    if (shape.kind == PackKind::f32) {
      std::memcpy(tile + at * 4, values + k, 4);
    } else if (shape.kind == PackKind::f16) {
      const uint16_t h = f32_to_f16(values[k]);
      std::memcpy(tile + at * 2, &h, 2);
    } else {
      PF_CHECK(shape.kind == PackKind::bf16, "pack_row_quant packs quantised weights");
      const uint16_t h = f32_to_bf16(values[k]);
      std::memcpy(tile + ((k / 2 * kTileRows + lane) * 2 + k % 2) * 2, &h, 2);
    }
  }
}

void pack_row_quant(const PackedShape& shape, int row, const QuantRow& values, std::byte* data) {
  check_shape(shape);
  PF_CHECK(quantised(shape.kind), "pack_row_f32 packs unquantised weights");
  PF_CHECK(!shape.has_min || values.min != nullptr);
  const BlockLayout l = block_layout(shape);
  std::byte* tile = tile_of(shape, row, data);
  const int lane = row % kTileRows;
  const int subs = kBlockInputs / shape.group;
  for (int b = 0; b < shape.n_in / kBlockInputs; ++b) {
    std::byte* meta = tile + meta_offset(l, b);
    for (int s = 0; s < subs; ++s) {
      store_meta(meta + static_cast<size_t>(s) * l.scale_bytes, shape.scale_f16, lane,
                 values.scale[b * subs + s]);
      if (shape.has_min) {
        store_meta(meta + static_cast<size_t>(subs + s) * l.scale_bytes, shape.scale_f16, lane,
                   values.min[b * subs + s]);
      }
    }
    std::byte* block = tile + values_offset(l, b);
    const int8_t* q = values.q + static_cast<ptrdiff_t>(b) * kBlockInputs;
    for (int i = 0; i < kBlockInputs; ++i) {
      std::byte& at = block[value_byte(shape.kind, i, lane)];
      if (shape.kind == PackKind::w8) {
        at = static_cast<std::byte>(q[i] + 128);
      } else {
        PF_CHECK(q[i] >= 0 && q[i] <= 15, "a 4-bit weight is outside 0..15");
        const auto old = std::to_integer<unsigned>(at);
        const auto v = static_cast<unsigned>(q[i]);
        at = static_cast<std::byte>(i < 16 ? (old & 0xf0u) | v : (old & 0x0fu) | (v << 4));
      }
    }
  }
}

namespace {

void unpack_quant_row(const PackedShape& shape, const std::byte* tile, int lane, float* values) {
  const BlockLayout l = block_layout(shape);
  const int subs = kBlockInputs / shape.group;
  for (int b = 0; b < shape.n_in / kBlockInputs; ++b) {
    const std::byte* meta = tile + meta_offset(l, b);
    const std::byte* block = tile + values_offset(l, b);
    for (int i = 0; i < kBlockInputs; ++i) {
      const int s = i / shape.group;
      const float scale =
          load_meta(meta + static_cast<size_t>(s) * l.scale_bytes, shape.scale_f16, lane);
      const auto byte = std::to_integer<int>(block[value_byte(shape.kind, i, lane)]);
      const int q = shape.kind == PackKind::w8 ? byte - 128 : (i < 16 ? byte & 15 : byte >> 4);
      float v = static_cast<float>(q) * scale;
      if (shape.has_min) {
        const float min =
            load_meta(meta + static_cast<size_t>(subs + s) * l.scale_bytes, shape.scale_f16, lane);
        v = std::fma(static_cast<float>(q), scale, min);
      }
      values[static_cast<ptrdiff_t>(b) * kBlockInputs + i] = v;
    }
  }
}

}  // namespace

void unpack_row(const PackedMatrix& matrix, int row, float* values) {
  const PackedShape& shape = matrix.shape;
  check_shape(shape);
  PF_CHECK(row >= 0 && row < shape.n_out);
  const std::byte* tile = matrix.data + shape.tile_bytes() * static_cast<size_t>(row / kTileRows);
  const int lane = row % kTileRows;
  if (quantised(shape.kind)) return unpack_quant_row(shape, tile, lane, values);
  const auto j = static_cast<size_t>(lane);
  for (size_t k = 0; k < static_cast<size_t>(shape.n_in); ++k) {
    uint16_t h;
    if (shape.kind == PackKind::f32) {
      std::memcpy(values + k, tile + (k * kTileRows + j) * 4, 4);
    } else if (shape.kind == PackKind::f16) {
      std::memcpy(&h, tile + (k * kTileRows + j) * 2, 2);
      values[k] = f16_to_f32(h);
    } else {
      std::memcpy(&h, tile + ((k / 2 * kTileRows + j) * 2 + k % 2) * 2, 2);
      values[k] = bf16_to_f32(h);
    }
  }
}

}  // namespace pagefold::kernels
