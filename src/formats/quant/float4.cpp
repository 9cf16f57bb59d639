// IQ4_NL: f16 d; 16 bytes of nibbles.  value = d * table[q], a table of 16 uneven steps
// MXFP4:  e8m0 exponent; 16 bytes.     value = 2^(e - 128) * table[q], twice the e2m1 numbers (the
//         OCP microscaling format's 2^(e - 127) times the number itself)
// Byte j holds element j in its low nibble and element j + 16 in its high one.
#include <bit>

#include "formats/quant/blocks.h"

namespace pagefold::quant {
namespace {

void unpack_codes(const uint8_t* in, int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<int8_t>(in[j] & 15);
    q[j + 16] = static_cast<int8_t>(in[j] >> 4);
  }
}

// 2^(e - 128), subnormal below e = 2.
float half_of_e8m0(uint32_t e) {
  return std::bit_cast<float>(e < 2 ? 0x200000u << e : (e - 1) << 23);
}

}  // namespace

void unpack_iq4_nl(const uint8_t* in, int64_t n, int8_t* q, float* scale, float*) {
  for (int64_t b = 0; b < n / 32; ++b, in += 18) {
    scale[b] = load_f16(in);
    unpack_codes(in + 2, q + b * 32);
  }
}

void unpack_mxfp4(const uint8_t* in, int64_t n, int8_t* q, float* scale, float*) {
  for (int64_t b = 0; b < n / 32; ++b, in += 17) {
    scale[b] = half_of_e8m0(in[0]);
    unpack_codes(in + 1, q + b * 32);
  }
}

}  // namespace pagefold::quant
