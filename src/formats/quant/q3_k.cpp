// Q3_K, 256 values: 32 mask bytes; 64 bytes of 2-bit q; 12 bytes of 16 six-bit scales; f16 d.
// value = (d * (scale - 32)) * (q - 4 where the mask bit is clear)
// q as in Q2_K; bit g of mask byte l belongs to element l of the g-th run of 32.
#include "formats/quant/blocks.h"

namespace pagefold::quant {

void unpack_q3_k(const uint8_t* in, int64_t n, int8_t* q, float* scale, float*) {
  for (int64_t b = 0; b < n / 256; ++b, in += 110, q += 256, scale += 16) {
    const uint8_t* packed = in + 96;
    const float d = load_f16(in + 108);
    for (int g = 0; g < 16; ++g) {
      // Low four bits: the low nibbles of bytes 0-7, then their high ones. Top two: bytes 8-11.
      const int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4;
      const int high = (packed[8 + g % 4] >> (g / 4 * 2)) & 3;
      scale[g] = d * static_cast<float>((low | high << 4) - 32);
    }
    for (int i = 0; i < 256; ++i) {
      const int byte = 32 + i / 128 * 32 + i % 32;
      const int value = (in[byte] >> (i % 128 / 32 * 2)) & 3;
      const int set = (in[i % 32] >> (i / 32)) & 1;
      q[i] = static_cast<int8_t>(value - (set ? 0 : 4));
    }
  }
}

}  // namespace pagefold::quant
