// Q4_0: f16 d; 16 bytes of nibbles.       value = d * (q - 8), kept as q * d + (-8 d)
// Q4_1: f16 d, f16 m; 16 bytes of nibbles. value = d * q + m
// Byte j holds element j in its low nibble and element j + 16 in its high one.
#include "formats/quant/blocks.h"

namespace pagefold::quant {
namespace {

void unpack_nibbles(const uint8_t* in, int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<int8_t>(in[j] & 15);
    q[j + 16] = static_cast<int8_t>(in[j] >> 4);
  }
}

}  // namespace

void unpack_q4_0(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min) {
  for (int64_t b = 0; b < n / 32; ++b, in += 18) {
    scale[b] = load_f16(in);
    min[b] = -8.0f * scale[b];
    unpack_nibbles(in + 2, q + b * 32);
  }
}

void unpack_q4_1(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min) {
  for (int64_t b = 0; b < n / 32; ++b, in += 20) {
    scale[b] = load_f16(in);
    min[b] = load_f16(in + 2);
    unpack_nibbles(in + 4, q + b * 32);
  }
}

}  // namespace pagefold::quant
