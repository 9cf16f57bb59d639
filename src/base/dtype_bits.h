// The enum alone, without the standard library: what the files of one instruction set may include.
// Always inlined, so that no copy compiled with wider instructions can serve the rest of the
// program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagefold {

// The first three are also types of activations and weights; the others are of cached keys and
// values only.
enum class DType : uint8_t { f32, f16, bf16, fp8_e4m3, fp8_e5m2, int8, int4 };

__attribute__((always_inline)) constexpr size_t dtype_bits(DType t) {
  return t == DType::f32 ? 32 : t == DType::f16 || t == DType::bf16 ? 16 : t == DType::int4 ? 4 : 8;
}
// Not for int4: half a byte.
__attribute__((always_inline)) constexpr size_t dtype_bytes(DType t) { return dtype_bits(t) / 8; }

__attribute__((always_inline)) constexpr bool dtype_is_fp8(DType t) {
  return t == DType::fp8_e4m3 || t == DType::fp8_e5m2;
}
// Integer types carry a scale (int4 also a zero point) with every token and head.
__attribute__((always_inline)) constexpr bool dtype_has_scales(DType t) {
  return t == DType::int8 || t == DType::int4;
}

// Bytes of one token's cached key (or value) of one head, scales included. group: elements that
// share a scale, 0: the whole head. A scale is a float16; int4 has a float16 zero point beside it.
__attribute__((always_inline)) constexpr size_t kv_row_bytes(DType t, size_t head_dim,
                                                             size_t group) {
  const size_t scales = !dtype_has_scales(t) ? 0 : group == 0 ? 1 : (head_dim + group - 1) / group;
  return head_dim * dtype_bits(t) / 8 + scales * (t == DType::int4 ? 4 : 2);
}

}  // namespace pagefold
