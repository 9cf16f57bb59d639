// Appending rows to the cache, written once for the vector instruction sets (layouts: paged.h).
// Include after vec_avx2.h and fp8_avx2.h, or those of AVX-512: everything here is local to the
// including file.
#pragma once

#include "kernels/attention_parts.h"

namespace pagefold::kernels {
namespace {

// Stores n elements of the 16 in x, `stride` elements apart.
PF_INLINE void scatter(DType type, Vec::F x, int n, std::byte* to, size_t stride) {
  if (type == DType::f32) {
    alignas(64) float values[16];
    Vec::store(values, x);
    for (int i = 0; i < n; ++i)
      __builtin_memcpy(to + 4 * stride * static_cast<size_t>(i), values + i, 4);
    return;
  }
  alignas(64) uint16_t values[16];
  if (type == DType::f16)
    Vec::store_f16(values, x);
  else
    Vec::store_bf16(values, x);
  for (int i = 0; i < n; ++i)
    __builtin_memcpy(to + 2 * stride * static_cast<size_t>(i), values + i, 2);
}

// The same for bfloat16 keys: pairs of dimensions stay together, 16 pairs apart.
PF_INLINE void scatter_pairs(Vec::F x, int n, std::byte* to) {
  alignas(64) uint16_t values[16];
  Vec::store_bf16(values, x);
  for (int i = 0; i < n; i += 2) __builtin_memcpy(to + i / 2 * 64, values + i, 4);
}

PF_INLINE void append_number_keys(const KvLayout& layout, const float* x, int lane,
                                  std::byte* data) {
  for (int d = 0; d < layout.head_dim; d += 16) {
    const int n = layout.head_dim - d < 16 ? 8 : 16;
    const Vec::F key = Vec::load_n(x + d, n);
    if (layout.k_dtype == DType::bf16)
      scatter_pairs(key, n, data + d / 2 * 64 + lane * 4);
    else
      scatter(layout.k_dtype, key, n,
              data + static_cast<size_t>(d * kStripSlots + lane) * dtype_bytes(layout.k_dtype),
              kStripSlots);
  }
}

PF_INLINE void append_number_values(const KvLayout& layout, const float* x, int slot,
                                    std::byte* data) {
  const int dim = layout.head_dim;
  for (int d = 0; d < dim; d += 16) {
    const int n = dim - d < 16 ? 8 : 16;
    const Vec::F value = Vec::load_n(x + d, n);
    if (layout.v_dtype == DType::bf16)
      scatter(DType::bf16, value, n, data + slot / 2 * dim * 4 + d * 4 + slot % 2 * 2, 2);
    else
      scatter(layout.v_dtype, value, n,
              data + static_cast<size_t>(slot * dim + d) * dtype_bytes(layout.v_dtype), 1);
  }
}

// Sixteen bytes of a row, dimensions d to d + n, to where the layout wants them.
PF_INLINE void put_key_bytes(DType type, const uint8_t* bytes, int d, int n, int lane,
                             std::byte* data) {
  if (type == DType::int8) {
    for (int i = 0; i < n; i += 4)
      __builtin_memcpy(data + (d + i) / 4 * 64 + lane * 4, bytes + i, 4);
  } else if (type == DType::int4) {
    for (int i = 0; i < n; i += 8) {
      uint32_t low, high;
      __builtin_memcpy(&low, bytes + i, 4);
      __builtin_memcpy(&high, bytes + i + 4, 4);
      low |= high << 4;
      __builtin_memcpy(data + (d + i) / 8 * 64 + lane * 4, &low, 4);
    }
  } else {
    std::byte* const to = data + d / 4 * 64 + lane / 4 * 16 + lane % 4 * 2;
    for (int i = 0; i < n; i += 2) __builtin_memcpy(to + i / 4 * 64 + i % 4 / 2 * 8, bytes + i, 2);
  }
}

PF_INLINE void put_value_bytes(DType type, const uint8_t* bytes, int d, int n, int slot, int dim,
                               std::byte* data) {
  if (type == DType::int8) {
    std::byte* const to = data + slot / 4 * dim * 4 + d * 4 + slot % 4;
    for (int i = 0; i < n; ++i) to[4 * i] = static_cast<std::byte>(bytes[i]);
  } else if (type == DType::int4) {
    std::byte* const to = data + slot / 8 * dim * 4 + d * 4 + slot % 4;
    const int shift = slot % 8 < 4 ? 0 : 4;
    for (int i = 0; i < n; ++i) {
      const unsigned kept = static_cast<unsigned>(to[4 * i]) & (0xf0u >> shift);
      to[4 * i] = static_cast<std::byte>(kept | static_cast<unsigned>(bytes[i]) << shift);
    }
  } else {
    std::byte* const to = data + slot / 4 * dim * 4 + d * 4 + slot % 4 / 2 * 8 + slot % 2;
    for (int i = 0; i < n; ++i) to[i / 4 * 16 + i % 4 * 2] = static_cast<std::byte>(bytes[i]);
  }
}

struct RowBytes {
  DType type;
  bool keys;
  int slot, dim;
  std::byte* data;
  PF_INLINE void put(const uint8_t* bytes, int d, int n) const {
    if (keys)
      put_key_bytes(type, bytes, d, n, slot, data);
    else
      put_value_bytes(type, bytes, d, n, slot, dim, data);
  }
};

PF_INLINE unsigned append_fp8(const RowBytes& row, const float* x, float scale) {
  const Vec::F divisor = Vec::set1(scale);
  unsigned saturated = 0;
  for (int d = 0; d < row.dim; d += 16) {
    const int n = row.dim - d < 16 ? 8 : 16;
    alignas(16) uint8_t bytes[16];
    const Vec::F v = Vec::div(Vec::load_n(x + d, n), divisor);
    saturated += row.type == DType::fp8_e4m3 ? encode_fp8<3, 7, 0x7e>(v, bytes)
                                             : encode_fp8<2, 15, 0x7b>(v, bytes);
    row.put(bytes, d, n);
  }
  return saturated;
}

PF_INLINE float through_half(float x) {
  return _cvtsh_ss(_cvtss_sh(x < 65504.0f ? x : 65504.0f, _MM_FROUND_TO_NEAREST_INT));
}

struct GroupScale {
  float scale, zero;
};
// kv_append_scalar.cpp has the same in plain steps.
PF_INLINE GroupScale scale_group(DType type, const float* x, int n) {
  Vec::F most = Vec::zero(), least = Vec::zero(), odd = Vec::zero();
  for (int i = 0; i < n; i += 16) {
    const Vec::F v = Vec::load_n(x + i, n - i < 16 ? 8 : 16);
    most = Vec::max(v, most);
    least = Vec::max(Vec::sub(Vec::zero(), v), least);
    odd = Vec::add(odd, Vec::sub(v, v));  // NaN where v is NaN or infinite
  }
  if (Vec::any_nan(odd)) return {__builtin_nanf(""), 0.0f};
  const float hi = Vec::reduce_max(most), lo = Vec::reduce_max(least);
  if (type == DType::int8) return {through_half((lo > hi ? lo : hi) / 127.0f), 0.0f};
  const float scale = through_half((hi * 0.5f + lo * 0.5f) / 7.5f);
  const float zero = scale > 0.0f ? lo / scale : 0.0f;
  return {scale, through_half(zero < 15.0f ? zero : 15.0f)};
}

PF_INLINE void append_integers(const RowBytes& row, const KvLayout& layout, const float* x,
                               std::byte* scales) {
  const bool wide = row.type == DType::int8;
  const Vec::F lowest = Vec::set1(wide ? -127.0f : 0.0f),
               highest = Vec::set1(wide ? 127.0f : 15.0f);
  const Vec::F offset = Vec::set1(wide && row.keys ? 128.0f : 0.0f);
  for (int g = 0; g < layout.groups(); ++g) {
    const int begin = layout.group_begin(g), end = layout.group_end(g);
    const GroupScale of = scale_group(row.type, x + begin, end - begin);
    std::byte* const at = scales + (g * kStripSlots + row.slot) * 2;
    const uint16_t scale = _cvtss_sh(of.scale, _MM_FROUND_TO_NEAREST_INT);
    const uint16_t zero = _cvtss_sh(of.zero, _MM_FROUND_TO_NEAREST_INT);
    __builtin_memcpy(at, &scale, 2);
    if (!wide) __builtin_memcpy(at + layout.zeros_after_scales(), &zero, 2);
    const bool some = of.scale > 0.0f;  // else everything is zero, or NaN
    for (int d = begin; d < end; d += 16) {
      const int n = end - d < 16 ? 8 : 16;
      Vec::F v = Vec::zero();
      if (some)
        v = Vec::round(
            Vec::add(Vec::div(Vec::load_n(x + d, n), Vec::set1(of.scale)), Vec::set1(of.zero)));
      v = Vec::add(Vec::min(Vec::max(v, lowest), highest), offset);
      alignas(16) uint8_t bytes[16];
      Vec::store_bytes(bytes, v);
      row.put(bytes, d, n);
    }
  }
}

// K or V of one slot. Returns how many elements saturated.
PF_INLINE unsigned append_part(const KvLayout& layout, bool keys, const float* x, float fp8_scale,
                               int slot, std::byte* strip) {
  const DType type = keys ? layout.k_dtype : layout.v_dtype;
  std::byte* const data = strip + (keys ? 0 : layout.v_at());
  const RowBytes row{type, keys, slot, layout.head_dim, data};
  if (dtype_has_scales(type))
    append_integers(row, layout, x, strip + (keys ? layout.k_scales_at() : layout.v_scales_at()));
  else if (dtype_is_fp8(type))
    return append_fp8(row, x, fp8_scale);
  else if (keys)
    append_number_keys(layout, x, slot, data);
  else
    append_number_values(layout, x, slot, data);
  return 0;
}

PF_INLINE void append_rows(const KvLayout& layout, const KvAppendArgs& args) {
  uint64_t saturated = 0;
  for (int row = 0; row < args.rows; ++row) {
    const int64_t slot = args.first_slot + row;
    const auto in_block = static_cast<size_t>(slot % layout.block_size);
    std::byte* strip = args.base + args.blocks[slot / layout.block_size] * layout.block_bytes() +
                       in_block / kStripSlots * layout.strip_bytes();
    const int lane = static_cast<int>(slot % kStripSlots);
    saturated += append_part(layout, true, args.k + row * args.ldk, args.k_scale, lane, strip);
    saturated += append_part(layout, false, args.v + row * args.ldv, args.v_scale, lane, strip);
  }
  if (args.saturated != nullptr) *args.saturated += saturated;
}

}  // namespace
}  // namespace pagefold::kernels
