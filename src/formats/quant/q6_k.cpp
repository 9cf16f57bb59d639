// Q6_K, 256 values: 128 bytes of low nibbles; 64 bytes of top two bits; 16 int8 scales; f16 d.
// value = (d * scale) * (q - 32), one scale for 16 values.
// Each half of 128 values is four runs of 32: the low nibbles of its bytes 0-31, of bytes 32-63,
// then the high nibbles of the same; its 32 bytes of top bits serve the runs at shifts 0, 2, 4, 6.
#include "formats/quant/blocks.h"

namespace pagefold::quant {

void unpack_q6_k(const uint8_t* in, int64_t n, int8_t* q, float* scale, float*) {
  for (int64_t b = 0; b < n / 256; ++b, in += 210, q += 256, scale += 16) {
    const float d = load_f16(in + 208);
    for (int g = 0; g < 16; ++g) {
      scale[g] = d * static_cast<float>(static_cast<int8_t>(in[192 + g]));
    }
    for (int i = 0; i < 256; ++i) {
      const int half = i / 128;
      const int run = i % 128 / 32;
      const int byte = in[half * 64 + run % 2 * 32 + i % 32];
      const int low = run < 2 ? byte & 15 : byte >> 4;
      const int high = (in[128 + half * 32 + i % 32] >> (run * 2)) & 3;
      q[i] = static_cast<int8_t>((low | high << 4) - 32);
    }
  }
}

}  // namespace pagefold::quant
