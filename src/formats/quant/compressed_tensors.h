// compressed-tensors checkpoints, format pack-quantized: signed integers of 4 or 8 bits, offset to
// unsigned ones and packed along the inputs.
//   weight_packed int32 [n_out][ceil(n_in * bits / 32)], weight_scale [n_out][groups],
//   weight_zero_point, asymmetric only: int32 [ceil(n_out * bits / 32)][groups], packed along the
//   outputs; older files have it int8 [n_out][groups], not packed
// value = (q - zero) * scale. The other formats store plain int8 or fp8 matrices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/tensor_file.h"

namespace pagefold {

// Integers of one output: q[n_in]. 4 bits: 0..15 (8 stands for 0); 8 bits: -128..127.
void ct_unpack_row(const std::byte* weight_packed, int64_t out, int64_t n_in, int bits, int8_t* q);
// Zero points of one output: zero[groups], in the same terms as q.
void ct_zero_points(const std::byte* packed, int64_t out, int64_t groups, int bits, float* zero);

}  // namespace pagefold
