// Q2_K, 256 values: 16 bytes of (scale low nibble, min high nibble), one for 16 values; 64 bytes of
// 2-bit q; f16 d; f16 dmin. value = (d * scale) * q - dmin * min
// Each 32 bytes of q hold 128 values: bits 0-1 the first 32, then bits 2-3, 4-5, 6-7.
#include "formats/quant/blocks.h"

namespace pagefold::quant {

void unpack_q2_k(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min) {
  for (int64_t b = 0; b < n / 256; ++b, in += 84, q += 256, scale += 16, min += 16) {
    const float d = load_f16(in + 80);
    const float dmin = load_f16(in + 82);
    for (int g = 0; g < 16; ++g) {
      scale[g] = d * static_cast<float>(in[g] & 15);
      min[g] = -(dmin * static_cast<float>(in[g] >> 4));
    }
    for (int i = 0; i < 256; ++i) {
      const int byte = 16 + i / 128 * 32 + i % 32;
      q[i] = static_cast<int8_t>((in[byte] >> (i % 128 / 32 * 2)) & 3);
    }
  }
}

}  // namespace pagefold::quant
