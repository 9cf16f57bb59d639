// GGUF block types: values = q * scale[group] + min[group], or table[q] * scale[group], unpacked
// without loss.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "formats/tensor_file.h"

namespace pagefold {

struct BlockTypeTraits {
  int bits;   // 4: q in 0..15 (Q4_0, Q4_1, Q4_K, tables); 8: q in -128..127 (everything else)
  int group;  // values a scale: 16 or 32
  bool has_min;
  bool scale_f16;  // scale and min are float16 numbers as stored (else products of two stored
                   // numbers, exact in float32). Q4_0's min is -8 * scale: a float16 number too
                   // as long as |scale| <= 8188
  const std::array<float, 16>* table = nullptr;  // IQ4_NL, MXFP4: what the 16 codes stand for
};

// Null for types that are not quantised.
const BlockTypeTraits* block_type_traits(TensorType type);

// n values (a multiple of the type's block) from `bytes`. q[n], scale[n / group], min[n / group]
// (null if !has_min). q * scale is exact in float32 for every type, so a value is rounded once at
// most, when the min is added. `bytes` need not be aligned.
void unpack_blocks(TensorType type, const std::byte* bytes, int64_t n, int8_t* q, float* scale,
                   float* min);
// The same as floats; also F32, F16, BF16.
void dequantize(TensorType type, const std::byte* bytes, int64_t n, float* out);

}  // namespace pagefold
