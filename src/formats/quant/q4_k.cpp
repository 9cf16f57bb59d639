// Q4_K, 256 values: f16 d; f16 dmin; 12 bytes of 8 six-bit scales and mins; 128 bytes of nibbles.
// Q5_K: the same with 32 bytes of fifth bits before the nibbles.
// value = (d * scale) * q - dmin * min, one scale and min for 32 values.
// Each 32 bytes of nibbles: the low ones are one run of 32, the high ones the next. Bit g of fifth-
// bit byte l belongs to element l of run g.
#include "formats/quant/blocks.h"

namespace pagefold::quant {
namespace {

// Runs 0-3: scale and min are the low six bits of bytes j and j + 4. Runs 4-7: low four bits are
// the low (scale) and high (min) nibble of byte j + 4, top two those of bytes j - 4 and j.
void unpack_scales(const uint8_t* in, float* scale, float* min) {
  const float d = load_f16(in);
  const float dmin = load_f16(in + 2);
  const uint8_t* p = in + 4;
  for (int j = 0; j < 8; ++j) {
    const int s = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | (p[j - 4] >> 6) << 4;
    const int m = j < 4 ? p[j + 4] & 63 : (p[j + 4] >> 4) | (p[j] >> 6) << 4;
    scale[j] = d * static_cast<float>(s);
    min[j] = -(dmin * static_cast<float>(m));
  }
}

int nibble(const uint8_t* in, int i) {
  const int byte = in[i / 64 * 32 + i % 32];
  return i / 32 % 2 == 0 ? byte & 15 : byte >> 4;
}

}  // namespace

void unpack_q4_k(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min) {
  for (int64_t b = 0; b < n / 256; ++b, in += 144, q += 256) {
    unpack_scales(in, scale + b * 8, min + b * 8);
    for (int i = 0; i < 256; ++i) q[i] = static_cast<int8_t>(nibble(in + 16, i));
  }
}

void unpack_q5_k(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min) {
  for (int64_t b = 0; b < n / 256; ++b, in += 176, q += 256) {
    unpack_scales(in, scale + b * 8, min + b * 8);
    for (int i = 0; i < 256; ++i) {
      const int fifth = (in[16 + i % 32] >> (i / 32)) & 1;
      q[i] = static_cast<int8_t>(nibble(in + 48, i) | fifth << 4);
    }
  }
}

}  // namespace pagefold::quant
