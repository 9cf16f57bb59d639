#include "kernels/packed.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "kernels/packed_fp8.h"
#include "kernels/packed_layout.h"

namespace pagefold::kernels {
namespace {

size_t round_up_64(size_t n) { return (n + 63) / 64 * 64; }

void check_shape(const PackedShape& s) {
  PF_CHECK(s.n_out >= 0 && s.n_in > 0);
  if (!is_quantised(s.kind)) return;
  PF_CHECK(s.n_in % kBlockInputs == 0, "quantised weights come in blocks of 32 inputs");
  PF_CHECK(s.group == 16 || (s.group > 0 && s.group % kBlockInputs == 0 && s.n_in % s.group == 0),
           "a group is 16 inputs, or a multiple of 32 that divides the row");
  const bool linear = s.kind == PackKind::w8 || s.kind == PackKind::w4;
  PF_CHECK(linear ? !(s.has_min && s.has_zero) : !s.has_min && !s.has_zero,
           "linear kinds have mins or zero points, the others neither");
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

// Byte of a block's values that holds input i of `lane`; two inputs share one of nibbles.
size_t value_byte(PackKind kind, int i, int lane) {
  const int k = in_nibbles(kind) ? i % 16 : i;
  return static_cast<size_t>(k / 4 * 64 + lane * 4 + k % 4);
}

void store_value(PackKind kind, std::byte* block, int i, int lane, int8_t q) {
  std::byte& at = block[value_byte(kind, i, lane)];
  if (kind == PackKind::w8) {
    at = static_cast<std::byte>(q + 128);
  } else if (kind == PackKind::fp8) {
    at = static_cast<std::byte>(fp8_to_packed(static_cast<uint8_t>(q)));
  } else {
    PF_CHECK(q >= 0 && q <= 15, "a 4-bit weight is outside 0..15");
    const auto old = std::to_integer<unsigned>(at);
    const auto v = static_cast<unsigned>(q);
    at = static_cast<std::byte>(i < 16 ? (old & 0xf0u) | v : (old & 0x0fu) | (v << 4));
  }
}

float load_value(const PackedMatrix& m, const std::byte* block, int i, int lane) {
  const auto byte = std::to_integer<int>(block[value_byte(m.shape.kind, i, lane)]);
  const int nibble = i < 16 ? byte & 15 : byte >> 4;
  switch (m.shape.kind) {
    case PackKind::w8:
      return static_cast<float>(byte - 128);
    case PackKind::fp8:
      return e4m3_value(fp8_from_packed(static_cast<uint8_t>(byte)));
    case PackKind::t4:
      return m.table[nibble];
    default:
      return static_cast<float>(nibble);
  }
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
    default:
      break;
  }
  const BlockLayout l = block_layout(*this);
  const size_t sections = n / kBlockInputs / static_cast<size_t>(l.section_blocks);
  const size_t units = (sections + (size_t{1} << l.unit_shift) - 1) >> l.unit_shift;
  return units * l.unit_meta + sections * l.section_bytes;
}

bool takes_int8(PackKind kind, const float* table) {
  if (kind == PackKind::w4 || kind == PackKind::w8) return true;
  if (kind != PackKind::t4) return false;
  for (int i = 0; i < 16; ++i) {
    if (!(table[i] >= -128 && table[i] <= 127 && table[i] == std::trunc(table[i]))) return false;
  }
  return true;
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
  PF_CHECK(is_quantised(shape.kind), "pack_row_f32 packs unquantised weights");
  const bool offsets = shape.has_min || shape.has_zero;
  PF_CHECK(!offsets || values.min != nullptr);
  const BlockLayout l = block_layout(shape);
  std::byte* tile = tile_of(shape, row, data);
  const int lane = row % kTileRows;
  const int width = l.section_blocks * kBlockInputs;  // inputs of a section
  const int subs = width / shape.group;
  for (int section = 0; section < shape.n_in / width; ++section) {
    std::byte* meta = tile + meta_offset(l, section);
    for (int s = 0; s < subs; ++s) {
      const int group = section * subs + s;
      store_meta(meta + static_cast<size_t>(s) * l.scale_bytes, shape.scale_f16, lane,
                 values.scale[group]);
      if (!offsets) continue;
      const float v = values.min[group];
      PF_CHECK(!shape.has_zero || (v >= -128 && v <= 255 && v == std::trunc(v)),
               "a zero point is not an integer in -128..255");
      store_meta(meta + static_cast<size_t>(subs + s) * l.scale_bytes, shape.scale_f16, lane, v);
    }
    std::byte* block = tile + values_offset(l, section);
    const int8_t* q = values.q + static_cast<ptrdiff_t>(section) * width;
    for (int i = 0; i < width; ++i) {
      store_value(shape.kind, block + static_cast<size_t>(i / kBlockInputs) * l.values_bytes,
                  i % kBlockInputs, lane, q[i]);
    }
  }
}

namespace {

void unpack_quant_row(const PackedMatrix& m, const std::byte* tile, int lane, float* values) {
  const PackedShape& shape = m.shape;
  const BlockLayout l = block_layout(shape);
  const int width = l.section_blocks * kBlockInputs;
  const int subs = width / shape.group;
  const bool offsets = shape.has_min || shape.has_zero;
  for (int group = 0; group < shape.n_in / shape.group; ++group) {
    const int section = group / subs, s = group % subs;
    const std::byte* meta = tile + meta_offset(l, section);
    const float scale =
        load_meta(meta + static_cast<size_t>(s) * l.scale_bytes, shape.scale_f16, lane);
    const float offset = offsets ? load_meta(meta + static_cast<size_t>(subs + s) * l.scale_bytes,
                                             shape.scale_f16, lane)
                                 : 0.0f;
    const std::byte* block = tile + values_offset(l, section);
    for (int i = s * shape.group; i < (s + 1) * shape.group; ++i) {
      const float x = load_value(m, block + static_cast<size_t>(i / kBlockInputs) * l.values_bytes,
                                 i % kBlockInputs, lane);
      float& v = values[static_cast<ptrdiff_t>(section) * width + i];
      if (shape.has_min) {
        v = std::fma(x, scale, offset);
      } else {
        v = (x - offset) * scale;  // the difference of small integers is exact
      }
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
  if (is_quantised(shape.kind)) return unpack_quant_row(matrix, tile, lane, values);
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
