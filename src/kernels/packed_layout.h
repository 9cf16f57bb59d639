// Where things lie in a tile of packed weights (16 output rows). Internal to the kernels.
//
//   f32, f16   [n_in][16]
//   bf16       [ceil(n_in / 2)][16][2]
//   others     sections of one group, or of 32 inputs where groups are smaller. A section has
//     meta:    scale[groups][16], then min or zero point [groups][16] if there are any; all float16
//              or all float32 (a zero point is a small integer, which both hold exactly)
//     values:  of each 32 inputs
//              w8, fp8  [8][16][4] uint8: w8 as q + 128 (vpdpbusd wants its weight operand
//                       unsigned), fp8 as fp8_to_packed() says
//              w4, t4   [4][16][4] bytes: quad j holds inputs 4j..4j+3 in the low nibbles and
//                       16+4j.. in the high ones, so that low = the first 16 inputs, high = the
//                       second
//   The sections of a tile follow each other as (meta, values), every part on a 64-byte line. Where
//   a section's meta is only 32 bytes (float16 scales and nothing else), two sections form a unit:
//   meta, meta, values, values; an odd last section leaves its second meta slot unused.
#pragma once

#include <cstddef>

#include "kernels/packed.h"

// What ISA files take from here must be inlined there and never be emitted as a shared function:
// the linker would keep one copy for the whole program, possibly the one that needs AVX-512.
#define PF_ISA_INLINE __attribute__((always_inline)) inline
// Loops over rows and tiles of a block must vanish, or their accumulators live in memory.
// Sanitizer builds keep them: a check on every access of an unrolled loop is slow to compile.
#ifdef PAGEFOLD_KEEP_LOOPS
#define PF_UNROLL
#else
#define PF_UNROLL _Pragma("GCC unroll 16")
#endif

namespace pagefold::kernels {
namespace {

constexpr int kBlockInputs = 32;

struct BlockLayout {
  size_t values_bytes;   // of 32 inputs
  size_t section_bytes;  // values of a section
  size_t meta_bytes;     // of a section
  size_t scale_bytes;    // 16 scales (or mins, or zero points)
  size_t unit_bytes;
  size_t unit_meta;     // bytes of meta at the start of a unit
  unsigned unit_shift;  // log2(sections in a unit)
  int section_blocks;   // 32 inputs each
};

// Values that take half a byte; the others of a quantised kind take one.
PF_ISA_INLINE bool in_nibbles(PackKind k) { return k == PackKind::w4 || k == PackKind::t4; }
PF_ISA_INLINE bool is_quantised(PackKind k) {
  return k == PackKind::w8 || k == PackKind::fp8 || in_nibbles(k);
}

PF_ISA_INLINE BlockLayout block_layout(const PackedShape& s) {
  BlockLayout l{};
  l.values_bytes = in_nibbles(s.kind) ? 256 : 512;
  l.scale_bytes = s.scale_f16 ? 32 : 64;
  l.section_blocks = s.group > kBlockInputs ? s.group / kBlockInputs : 1;
  l.section_bytes = l.values_bytes * static_cast<size_t>(l.section_blocks);
  l.meta_bytes =
      l.scale_bytes * (s.group < kBlockInputs ? 2u : 1u) * (s.has_min || s.has_zero ? 2u : 1u);
  l.unit_shift = l.meta_bytes == 32 ? 1 : 0;
  l.unit_meta = l.meta_bytes << l.unit_shift;
  l.unit_bytes = l.unit_meta + (l.section_bytes << l.unit_shift);
  return l;
}
PF_ISA_INLINE size_t meta_offset(const BlockLayout& l, int section) {
  const auto b = static_cast<unsigned>(section);
  return (b >> l.unit_shift) * l.unit_bytes + (b & l.unit_shift) * l.meta_bytes;
}
PF_ISA_INLINE size_t values_offset(const BlockLayout& l, int section) {
  const auto b = static_cast<unsigned>(section);
  return (b >> l.unit_shift) * l.unit_bytes + l.unit_meta + (b & l.unit_shift) * l.section_bytes;
}

}  // namespace
}  // namespace pagefold::kernels
