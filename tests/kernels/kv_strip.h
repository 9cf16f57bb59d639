// The layouts of paged.h written out again, by element: what tests read and expect in a strip.
#pragma once

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/paged.h"

namespace pagefold::kernels {

// All fp8 magnitudes by the definition of the formats. NaN codes give NaN.
inline float fp8_value(DType type, unsigned code) {
  const bool e4m3 = type == DType::fp8_e4m3;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int mantissa = static_cast<int>(code & ((1u << mantissa_bits) - 1));
  const int exponent = static_cast<int>((code & 0x7fu) >> mantissa_bits);
  const double sign = (code & 0x80u) ? -1 : 1;
  if (e4m3 && (code & 0x7fu) == 0x7fu) return NAN;
  if (!e4m3 && exponent == 31) return mantissa != 0 ? NAN : static_cast<float>(sign * INFINITY);
  const double whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return static_cast<float>(sign * std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits));
}

// The nearest code by search, ties to the even code; beyond the largest: the largest.
inline unsigned fp8_code(DType type, float x, bool* saturated = nullptr) {
  const unsigned sign = std::signbit(x) ? 0x80u : 0u;
  if (saturated != nullptr) *saturated = false;
  if (std::isnan(x)) return sign | 0x7fu;
  const unsigned largest = type == DType::fp8_e4m3 ? 0x7eu : 0x7bu;
  const double a = std::abs(double{x});
  // Halfway between the largest and what would follow it.
  const double limit = type == DType::fp8_e4m3 ? 464.0 : 61440.0;
  if (a > limit || (a == limit && largest % 2 == 1)) {
    if (saturated != nullptr) *saturated = true;
    return sign | largest;
  }
  unsigned below = 0, above = largest + 1;  // magnitudes grow with the code
  while (above - below > 1) {
    const unsigned c = (below + above) / 2;
    (fp8_value(type, c) <= a ? below : above) = c;
  }
  if (below == largest) return sign | largest;
  const double down = a - fp8_value(type, below), up = fp8_value(type, above) - a;
  return sign | (down < up || (down == up && below % 2 == 0) ? below : above);
}

struct StripMap {
  const KvLayout& l;

  int groups() const { return l.group == 0 ? 1 : (l.head_dim + l.group - 1) / l.group; }
  int group_of(int d) const { return l.group == 0 ? 0 : d / l.group; }

  // Bits from the start of the strip.
  size_t key_bit(int d, int s) const {
    const auto i = [](int v) { return static_cast<size_t>(v) * 8; };
    switch (l.k_dtype) {
      case DType::f32:
        return i(64 * d + 4 * s);
      case DType::f16:
        return i(32 * d + 2 * s);
      case DType::bf16:
        return i(64 * (d / 2) + 4 * s + 2 * (d % 2));
      case DType::fp8_e4m3:
      case DType::fp8_e5m2:
        return i(64 * (d / 4) + 16 * (s / 4) + 8 * (d / 2 % 2) + 2 * (s % 4) + d % 2);
      case DType::int8:
        return i(64 * (d / 4) + 4 * s + d % 4);
      case DType::int4:
        return i(64 * (d / 8) + 4 * s + d % 4) + (d / 4 % 2 == 1 ? 4 : 0);
    }
    return 0;
  }
  size_t value_bit(int d, int s) const {
    const int n = l.head_dim;
    const size_t keys = static_cast<size_t>(n * 16) * dtype_bits(l.k_dtype);
    const auto i = [keys](int v) { return keys + static_cast<size_t>(v) * 8; };
    switch (l.v_dtype) {
      case DType::f32:
        return i(4 * n * s + 4 * d);
      case DType::f16:
        return i(2 * n * s + 2 * d);
      case DType::bf16:
        return i(4 * n * (s / 2) + 4 * d + 2 * (s % 2));
      case DType::fp8_e4m3:
      case DType::fp8_e5m2:
        return i(4 * n * (s / 4) + 16 * (d / 4) + 8 * (s / 2 % 2) + 2 * (d % 4) + s % 2);
      case DType::int8:
        return i(4 * n * (s / 4) + 4 * d + s % 4);
      case DType::int4:
        return i(4 * n * (s / 8) + 4 * d + s % 4) + (s / 4 % 2 == 1 ? 4 : 0);
    }
    return 0;
  }
  size_t scales_at(bool keys) const {
    const size_t data =
        static_cast<size_t>(l.head_dim) * 2 * (dtype_bits(l.k_dtype) + dtype_bits(l.v_dtype));
    const size_t k = l.k_dtype == DType::int4 ? 64 : l.k_dtype == DType::int8 ? 32 : 0;
    return data + (keys ? 0 : k * static_cast<size_t>(groups()));
  }
  size_t scale_at(bool keys, int group, int s) const {
    return scales_at(keys) + static_cast<size_t>(32 * group + 2 * s);
  }
  size_t zero_at(bool keys, int group, int s) const { return scale_at(keys, groups() + group, s); }
  DType type(bool keys) const { return keys ? l.k_dtype : l.v_dtype; }
  size_t bit(bool keys, int d, int s) const { return keys ? key_bit(d, s) : value_bit(d, s); }

  unsigned raw(const std::byte* strip, bool keys, int d, int s) const {
    const size_t at = bit(keys, d, s), bits = dtype_bits(type(keys));
    uint32_t word = 0;
    std::memcpy(&word, strip + at / 8, bits < 8 ? 1 : bits / 8);
    return bits == 4 ? word >> (at % 8) & 15u : word;
  }
  void put_raw(std::byte* strip, bool keys, int d, int s, uint32_t word) const {
    const size_t at = bit(keys, d, s), bits = dtype_bits(type(keys));
    if (bits == 4) {
      const auto old = static_cast<unsigned>(strip[at / 8]);
      word = (old & ~(15u << (at % 8))) | word << (at % 8);
    }
    std::memcpy(strip + at / 8, &word, bits < 8 ? 1 : bits / 8);
  }
  float half_at(const std::byte* strip, size_t at) const {
    uint16_t h;
    std::memcpy(&h, strip + at, 2);
    return f16_to_f32(h);
  }
  float scale(const std::byte* strip, bool keys, int d, int s) const {
    return half_at(strip, scale_at(keys, group_of(d), s));
  }

  // What an element stands for.
  float value(const std::byte* strip, bool keys, int d, int s) const {
    const unsigned x = raw(strip, keys, d, s);
    float f = 0;
    switch (type(keys)) {
      case DType::f32:
        std::memcpy(&f, &x, 4);
        return f;
      case DType::f16:
        return f16_to_f32(static_cast<uint16_t>(x));
      case DType::bf16:
        return bf16_to_f32(static_cast<uint16_t>(x));
      case DType::fp8_e4m3:
      case DType::fp8_e5m2:
        return fp8_value(type(keys), x);
      case DType::int8:
        return scale(strip, keys, d, s) *
               static_cast<float>(keys ? static_cast<int>(x) - 128 : static_cast<int8_t>(x));
      case DType::int4:
        return scale(strip, keys, d, s) *
               (static_cast<float>(x) - half_at(strip, zero_at(keys, group_of(d), s)));
    }
    return 0;
  }
};

}  // namespace pagefold::kernels
