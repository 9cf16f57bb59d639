// OCP e4m3 (no infinities) as numbers and as the packed bytes that kernels decode. Reference code
// for the baseline; vector files have their own.
#pragma once

#include <cstdint>
#include <limits>

namespace pagefold::kernels {

// sign, exponent (bias 7), mantissa: s eeee mmm. 0x7f and 0xff are NaN.
constexpr float e4m3_value(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  float v = static_cast<float>(exponent == 0 ? mantissa : mantissa + 8) * 0x1p-9f;
  for (int i = 1; i < exponent; ++i) v *= 2.0f;
  return (code & 0x80) != 0 ? -v : v;
}

// Packed: s, low exponent bit and mantissa, high three exponent bits: s emmm eee. Two windows of
// this byte, one bit apart, are then the top bytes of a float32 (vpmultishiftqb). With a zero
// exponent the kernels look the value up, and negative zero, which has no use in a product, is NaN.
constexpr uint8_t kPackedNan = 0x80;
constexpr uint8_t fp8_to_packed(uint8_t code) {
  if ((code & 0x7f) == 0x7f) return kPackedNan;
  if (code == 0x80) return 0;
  return static_cast<uint8_t>((code & 0x80) | (code & 15) << 3 | (code >> 4 & 7));
}
constexpr uint8_t fp8_from_packed(uint8_t packed) {
  if (packed == kPackedNan) return 0x7f;
  return static_cast<uint8_t>((packed & 0x80) | (packed & 7) << 4 | (packed >> 3 & 15));
}

}  // namespace pagefold::kernels
