// The unpackers of each family: see block_types.h for q, scale and min, and the .cpp files for the
// layouts. n is a whole number of blocks. Private to src/formats/quant.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace pagefold::quant {

inline uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
inline float load_f16(const uint8_t* p) { return f16_to_f32(load_u16(p)); }

void unpack_q4_0(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_q4_1(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_q5_0(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_q5_1(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_q8_0(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_q2_k(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_q3_k(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_q4_k(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_q5_k(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_q6_k(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_iq4_nl(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);
void unpack_mxfp4(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);

inline constexpr std::array<float, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::array<float, 16> kMxfp4Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace pagefold::quant
