// fp8 weights: the e4m3fn format of the OCP 8-bit floating point specification (bias 7, no
// infinity, NaN 0x7f and 0xff, largest 448).
//   per tensor    weight_scale [] or [1]          value = decode(code) * scale, always
//   per channel   weight_scale [n_out] or [n_out, 1]
//   blocks        weight_scale_inv [ceil(n_out / bn)][ceil(n_in / bk)]: multiplied, too
#pragma once

#include <cstdint>

#include "base/fp8.h"

namespace pagefold {

constexpr float kFp8Max = 448.0f;

float fp8_e4m3_value(uint8_t code);  // from a table
// Round to nearest even; beyond the range: the largest finite code; NaN stays NaN.
inline uint8_t fp8_e4m3_code(float value) { return f32_to_e4m3(value); }
constexpr bool fp8_e4m3_is_nan(uint8_t code) { return (code & 0x7f) == 0x7f; }

}  // namespace pagefold
