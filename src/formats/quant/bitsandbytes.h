// bitsandbytes 4-bit checkpoints: the matrix flattened row by row, two codes a byte (the even
// element in the high half), one absolute maximum a block of `blocksize` elements.
//   X.weight [n * m / 2, 1] bytes, X.weight.absmax, X.weight.quant_map float32 [16],
//   X.weight.quant_state.bitsandbytes__nf4 (or __fp4): the bytes of a JSON object
// value = quant_map[code] * absmax[block]. Double quantisation stores absmax as uint8:
//   absmax = nested_quant_map[code] * nested_absmax[block / nested_blocksize] + nested_offset
// 8 bit: X.weight int8 [n_out, n_in], X.SCB float32 [n_out]; value = q * SCB / 127.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace pagefold {

struct Bnb4State {
  std::string quant_type;  // nf4 or fp4
  int64_t blocksize = 64;
  std::vector<int64_t> shape;  // [n_out, n_in]
  bool nested = false;
  int64_t nested_blocksize = 256;
  float nested_offset = 0;
};
// Checks every field that is used.
Result<Bnb4State> parse_bnb4_state(std::span<const std::byte> json);

// Codes of elements [first, first + n), 0..15.
void bnb4_codes(const std::byte* weight, int64_t first, int64_t n, int8_t* code);

// The absolute maxima of blocks [first, first + n) from their codes. map: [256].
struct NestedAbsmax {
  const std::byte* codes = nullptr;          // uint8, one a block
  const std::byte* map = nullptr;            // float32 [256]
  const std::byte* nested_absmax = nullptr;  // float32, one a nested block
  int64_t blocksize = 256;
  float offset = 0;
};
void bnb4_nested_absmax(const NestedAbsmax& a, int64_t first, int64_t n, float* absmax);

// The tables that every file of the kind has: normal quantiles; a 4-bit float.
const std::array<float, 16>& nf4_table();
const std::array<float, 16>& fp4_table();
// The nearest code of x in [-1, 1]; halfway between two it is the lower.
int nf4_code(float x);

// 8 bit: the scale that stands for SCB / 127.
inline float bnb8_scale(float scb) { return scb / 127.0f; }

}  // namespace pagefold
