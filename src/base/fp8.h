// Scalar conversions of the two 8-bit floating point formats of the OCP specification (OFP8):
//   e4m3  bias 7, no infinity, NaN = 0x7f and 0xff, largest 448, least 2^-9
//   e5m2  bias 15, infinity = 0x7c, NaN above it, largest 57344, least 2^-16
// Vector code has its own in the ISA files; these are the reference.
#pragma once

#include <bit>
#include <cstdint>

namespace pagefold {

namespace fp8_detail {

template <int kMantissa, int kBias>
constexpr float decode_finite(uint8_t code) {
  const uint32_t mantissa = code & ((1u << kMantissa) - 1);
  const uint32_t exponent = (code & 0x7fu) >> kMantissa;
  const uint32_t sign = (code & 0x80u) << 24;
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 127 - kBias) << 23) |
                                (mantissa << (23 - kMantissa)));
  constexpr float kLeast =
      std::bit_cast<float>(static_cast<uint32_t>(128 - kBias - kMantissa) << 23);
  const float magnitude = static_cast<float>(mantissa) * kLeast;
  return sign ? -magnitude : magnitude;
}

// Round to nearest even. The code may lie beyond the largest finite one.
template <int kMantissa, int kBias>
constexpr uint32_t encode_magnitude(uint32_t abs) {
  if (abs < static_cast<uint32_t>(128 - kBias) << 23) {
    // Below the normal range. A number whose last bit weighs as much as the least subnormal rounds
    // at the right bit.
    constexpr uint32_t kMagic = static_cast<uint32_t>(128 - kBias - kMantissa + 23) << 23;
    return std::bit_cast<uint32_t>(std::bit_cast<float>(abs) + std::bit_cast<float>(kMagic)) -
           kMagic;
  }
  constexpr int kDropped = 23 - kMantissa;
  const uint32_t rounded = abs + ((1u << (kDropped - 1)) - 1) + ((abs >> kDropped) & 1u);
  return (rounded >> kDropped) - (static_cast<uint32_t>(127 - kBias) << kMantissa);
}

template <int kMantissa, int kBias, uint32_t kLargest>
constexpr uint8_t encode_saturating(float f, bool* saturated) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 24) & 0x80u, abs = bits & 0x7fffffffu;
  if (abs > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  uint32_t code = encode_magnitude<kMantissa, kBias>(abs);
  const bool beyond = code > kLargest;
  if (beyond) code = kLargest;
  if (saturated != nullptr) *saturated = beyond;
  return static_cast<uint8_t>(sign | code);
}

}  // namespace fp8_detail

constexpr float e4m3_to_f32(uint8_t code) {
  if ((code & 0x7fu) == 0x7fu) return std::bit_cast<float>(((code & 0x80u) << 24) | 0x7fc00000u);
  return fp8_detail::decode_finite<3, 7>(code);
}

constexpr float e5m2_to_f32(uint8_t code) {
  const uint32_t sign = (code & 0x80u) << 24;
  if ((code & 0x7fu) == 0x7cu) return std::bit_cast<float>(sign | 0x7f800000u);
  if ((code & 0x7fu) > 0x7cu) return std::bit_cast<float>(sign | 0x7fc00000u);
  return fp8_detail::decode_finite<2, 15>(code);
}

// Round to nearest even; what would overflow, infinity included, becomes the largest finite number
// (*saturated = true, else false; null: not wanted); NaN becomes 0x7f with its sign.
constexpr uint8_t f32_to_e4m3(float f, bool* saturated = nullptr) {
  if (saturated != nullptr) *saturated = false;
  return fp8_detail::encode_saturating<3, 7, 0x7eu>(f, saturated);
}
constexpr uint8_t f32_to_e5m2(float f, bool* saturated = nullptr) {
  if (saturated != nullptr) *saturated = false;
  return fp8_detail::encode_saturating<2, 15, 0x7bu>(f, saturated);
}

}  // namespace pagefold
