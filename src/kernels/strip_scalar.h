// Elements of a strip, one at a time: what the scalar kernels share. Layouts: paged.h.
#pragma once

#include <cmath>
#include <cstring>

#include "base/fp8.h"
#include "base/half.h"
#include "kernels/paged.h"

namespace pagefold::kernels::scalar {

inline uint16_t load16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}
inline void store16(std::byte* p, uint16_t v) { std::memcpy(p, &v, 2); }

// An element that is a number by itself.
inline float load_number(DType type, const std::byte* p) {
  float v = 0;
  switch (type) {
    case DType::f16:
      return f16_to_f32(load16(p));
    case DType::bf16:
      return bf16_to_f32(load16(p));
    case DType::fp8_e4m3:
      return e4m3_to_f32(static_cast<uint8_t>(*p));
    case DType::fp8_e5m2:
      return e5m2_to_f32(static_cast<uint8_t>(*p));
    case DType::f32:
      std::memcpy(&v, p, 4);
      break;
    case DType::int8:
    case DType::int4:
      break;  // not by itself
  }
  return v;
}

// Returns 1 where fp8 saturated.
inline unsigned store_number(DType type, float v, std::byte* p) {
  bool saturated = false;
  switch (type) {
    case DType::f16:
      store16(p, f32_to_f16(v));
      break;
    case DType::bf16:
      store16(p, f32_to_bf16(v));
      break;
    case DType::fp8_e4m3:
      *p = static_cast<std::byte>(f32_to_e4m3(v, &saturated));
      break;
    case DType::fp8_e5m2:
      *p = static_cast<std::byte>(f32_to_e5m2(v, &saturated));
      break;
    case DType::f32:
      std::memcpy(p, &v, 4);
      break;
    case DType::int8:
    case DType::int4:
      break;
  }
  return saturated ? 1 : 0;
}

// Byte offset of an element inside the K data. int4: the high nibble where d % 8 >= 4.
inline size_t k_offset(DType type, int d, int lane) {
  int at = 0;
  switch (type) {
    case DType::f32:
      at = (d * kStripSlots + lane) * 4;
      break;
    case DType::f16:
      at = (d * kStripSlots + lane) * 2;
      break;
    case DType::bf16:
      at = (d / 2 * kStripSlots + lane) * 4 + d % 2 * 2;
      break;
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
      at = d / 4 * 64 + lane / 4 * 16 + d % 4 / 2 * 8 + lane % 4 * 2 + d % 2;
      break;
    case DType::int8:
      at = (d / 4 * kStripSlots + lane) * 4 + d % 4;
      break;
    case DType::int4:
      at = (d / 8 * kStripSlots + lane) * 4 + d % 4;
      break;
  }
  return static_cast<size_t>(at);
}

// The same inside the V data. int4: the high nibble where slot % 8 >= 4.
inline size_t v_offset(DType type, int head_dim, int d, int slot) {
  int at = 0;
  switch (type) {
    case DType::f32:
      at = (slot * head_dim + d) * 4;
      break;
    case DType::f16:
      at = (slot * head_dim + d) * 2;
      break;
    case DType::bf16:
      at = (slot / 2 * head_dim + d) * 4 + slot % 2 * 2;
      break;
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
      at = slot / 4 * head_dim * 4 + d / 4 * 16 + slot % 4 / 2 * 8 + d % 4 * 2 + slot % 2;
      break;
    case DType::int8:
      at = (slot / 4 * head_dim + d) * 4 + slot % 4;
      break;
    case DType::int4:
      at = (slot / 8 * head_dim + d) * 4 + slot % 4;
      break;
  }
  return static_cast<size_t>(at);
}

// K or V of one strip, by element.
struct StripPart {
  const KvLayout& layout;
  bool keys;
  const std::byte* data;    // the K or V data
  const std::byte* scales;  // [groups][16]

  static StripPart k_of(const KvLayout& layout, const std::byte* strip) {
    return {layout, true, strip, strip + layout.k_scales_at()};
  }
  static StripPart v_of(const KvLayout& layout, const std::byte* strip) {
    return {layout, false, strip + layout.v_at(), strip + layout.v_scales_at()};
  }
  DType type() const { return keys ? layout.k_dtype : layout.v_dtype; }
  const std::byte* at(int d, int slot) const {
    return data + (keys ? k_offset(type(), d, slot) : v_offset(type(), layout.head_dim, d, slot));
  }
  bool high_nibble(int d, int slot) const { return (keys ? d : slot) % 8 >= 4; }
  // Integer types.
  int code(int d, int slot) const {
    const int byte = static_cast<int>(*at(d, slot));
    if (type() == DType::int4) return high_nibble(d, slot) ? byte >> 4 : byte & 15;
    return keys ? byte - 128 : static_cast<int8_t>(byte);
  }
  float scale(int group, int slot) const {
    return f16_to_f32(load16(scales + (group * kStripSlots + slot) * 2));
  }
  float zero(int group, int slot) const {
    if (type() != DType::int4) return 0.0f;
    return f16_to_f32(
        load16(scales + layout.zeros_after_scales() + (group * kStripSlots + slot) * 2));
  }
  float value(int d, int slot) const {
    if (!dtype_has_scales(type())) return load_number(type(), at(d, slot));
    const int group = layout.group == 0 ? 0 : d / layout.group;
    return scale(group, slot) * (static_cast<float>(code(d, slot)) - zero(group, slot));
  }
};

template <class Byte>
Byte* strip_of(const KvLayout& layout, Byte* base, const uint32_t* blocks, int64_t slot) {
  const auto in_block = static_cast<size_t>(slot % layout.block_size);
  return base + blocks[slot / layout.block_size] * layout.block_bytes() +
         in_block / kStripSlots * layout.strip_bytes();
}

}  // namespace pagefold::kernels::scalar
