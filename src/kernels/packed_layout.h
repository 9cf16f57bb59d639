// Where things lie in a tile of packed weights (16 output rows). Internal to the kernels.
//
//   f32, f16   [n_in][16]
//   bf16       [ceil(n_in / 2)][16][2]
//   w8, w4     blocks of 32 inputs. A block has
//     values:  w8  [8][16][4] uint8, q + 128 (vpdpbusd wants its weight operand unsigned)
//              w4  [4][16][4] bytes: quad j holds inputs 4j..4j+3 in the low nibbles and 16+4j..
//                  in the high ones, so that low = the first 16 inputs, high = the second
//     meta:    scale[32 / group][16], then min[32 / group][16] if there are any; float16 or float32
//   The blocks of a tile follow each other as (meta, values), every part on a 64-byte line. Where a
//   block's meta is only 32 bytes (float16 scales, groups of 32, no min), two blocks form a unit:
//   meta, meta, values, values; an odd last block leaves its second meta slot unused.
#pragma once

#include <cstddef>

#include "kernels/packed.h"

// What ISA files take from here must be inlined there and never be emitted as a shared function:
// the linker would keep one copy for the whole program, possibly the one that needs AVX-512.
#define PF_ISA_INLINE __attribute__((always_inline)) inline
// Loops over rows and tiles of a block must vanish, or their accumulators live in memory.
#define PF_UNROLL _Pragma("GCC unroll 16")

namespace pagefold::kernels {
namespace {

constexpr int kBlockInputs = 32;

struct BlockLayout {
  size_t values_bytes;  // of a block
  size_t meta_bytes;    // of a block
  size_t scale_bytes;   // 16 scales (or mins)
  size_t unit_bytes;
  size_t unit_meta;     // bytes of meta at the start of a unit
  unsigned unit_shift;  // log2(blocks in a unit)
};

PF_ISA_INLINE BlockLayout block_layout(const PackedShape& s) {
  BlockLayout l{};
  l.values_bytes = s.kind == PackKind::w8 ? 512 : 256;
  l.scale_bytes = s.scale_f16 ? 32 : 64;
  l.meta_bytes =
      l.scale_bytes * static_cast<size_t>(kBlockInputs / s.group) * (s.has_min ? 2u : 1u);
  l.unit_shift = l.meta_bytes == 32 ? 1 : 0;
  l.unit_meta = l.meta_bytes << l.unit_shift;
  l.unit_bytes = l.unit_meta + (l.values_bytes << l.unit_shift);
  return l;
}
PF_ISA_INLINE size_t meta_offset(const BlockLayout& l, int block) {
  const auto b = static_cast<unsigned>(block);
  return (b >> l.unit_shift) * l.unit_bytes + (b & l.unit_shift) * l.meta_bytes;
}
PF_ISA_INLINE size_t values_offset(const BlockLayout& l, int block) {
  const auto b = static_cast<unsigned>(block);
  return (b >> l.unit_shift) * l.unit_bytes + l.unit_meta + (b & l.unit_shift) * l.values_bytes;
}

}  // namespace
}  // namespace pagefold::kernels
