// Q5_0: f16 d; u32 fifth bits; 16 bytes of nibbles.        value = d * (q - 16)
// Q5_1: f16 d, f16 m; u32 fifth bits; 16 bytes of nibbles. value = d * q + m
// Nibbles as in Q4_0; bit i of the u32 is the fifth bit of element i.
#include "formats/quant/blocks.h"

namespace pagefold::quant {
namespace {

void unpack_five_bits(const uint8_t* high, const uint8_t* low, int offset, int8_t* q) {
  uint32_t bits;
  std::memcpy(&bits, high, sizeof bits);
  for (int j = 0; j < 16; ++j) {
    const auto first = static_cast<int>(((bits >> j) & 1u) << 4);
    const auto second = static_cast<int>(((bits >> (j + 16)) & 1u) << 4);
    q[j] = static_cast<int8_t>(((low[j] & 15) | first) - offset);
    q[j + 16] = static_cast<int8_t>(((low[j] >> 4) | second) - offset);
  }
}

}  // namespace

void unpack_q5_0(const uint8_t* in, int64_t n, int8_t* q, float* scale, float*) {
  for (int64_t b = 0; b < n / 32; ++b, in += 22) {
    scale[b] = load_f16(in);
    unpack_five_bits(in + 2, in + 6, 16, q + b * 32);
  }
}

void unpack_q5_1(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min) {
  for (int64_t b = 0; b < n / 32; ++b, in += 24) {
    scale[b] = load_f16(in);
    min[b] = load_f16(in + 2);
    unpack_five_bits(in + 4, in + 8, 0, q + b * 32);
  }
}

}  // namespace pagefold::quant
