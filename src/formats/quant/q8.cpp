// Q8_0: f16 d; 32 int8. value = d * q
#include "formats/quant/blocks.h"

namespace pagefold::quant {

void unpack_q8_0(const uint8_t* in, int64_t n, int8_t* q, float* scale, float*) {
  for (int64_t b = 0; b < n / 32; ++b, in += 34) {
    scale[b] = load_f16(in);
    std::memcpy(q + b * 32, in + 2, 32);
  }
}

}  // namespace pagefold::quant
