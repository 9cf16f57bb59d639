// Turns floats into the bytes of a tensor, for tests: plain types, and the simplest rule of each
// block type (32 values a block): Q8_0 and Q4_0 scale the largest magnitude to the end of the
// range, Q4_1 spreads 0..15 over [min, max]. Layouts: src/formats/quant.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "base/half.h"
#include "formats/tensor_file.h"
#include "support/gguf_writer.h"

namespace pagefold::testing {

inline int quantize_one(float value, float scale, int low, int high) {
  if (scale == 0.0f) return std::clamp(0, low, high);
  return std::clamp(static_cast<int>(std::lround(value / scale)), low, high);
}

inline void quantize_block(TensorType type, std::span<const float> x, Bytes& out) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const float largest = std::abs(*low) > std::abs(*high) ? *low : *high;  // with its sign
  float d = 0.0f;
  float m = 0.0f;
  if (type == TensorType::Q8_0) d = std::abs(largest) / 127.0f;
  if (type == TensorType::Q4_0) d = largest / -8.0f;  // the largest becomes q = 0, value -8 d
  if (type == TensorType::Q4_1) {
    d = (*high - *low) / 15.0f;
    m = *low;
  }
  append_raw(out, f32_to_f16(d));
  d = f16_to_f32(f32_to_f16(d));  // the reader's scale decides the rounding
  if (type == TensorType::Q8_0) {
    for (const float v : x) append_raw(out, static_cast<int8_t>(quantize_one(v, d, -127, 127)));
    return;
  }
  if (type == TensorType::Q4_1) {
    append_raw(out, f32_to_f16(m));
    m = f16_to_f32(f32_to_f16(m));
  }
  const auto nibble = [&](float v) {
    return type == TensorType::Q4_0 ? quantize_one(v, d, -8, 7) + 8 : quantize_one(v - m, d, 0, 15);
  };
  for (size_t j = 0; j < 16; ++j) {
    append_raw(out, static_cast<uint8_t>(nibble(x[j]) | nibble(x[j + 16]) << 4));
  }
}

// F32, F16, BF16, Q8_0, Q4_0, Q4_1. Block types want a multiple of 32 values.
inline Bytes quantize(TensorType type, std::span<const float> values) {
  Bytes out;
  switch (type) {
    case TensorType::F32:
      for (const float v : values) append_raw(out, v);
      return out;
    case TensorType::F16:
      for (const float v : values) append_raw(out, f32_to_f16(v));
      return out;
    case TensorType::BF16:
      for (const float v : values) append_raw(out, f32_to_bf16(v));
      return out;
    case TensorType::Q8_0:
    case TensorType::Q4_0:
    case TensorType::Q4_1:
      if (values.size() % 32 != 0) throw std::invalid_argument("not whole blocks of 32 values");
      for (size_t i = 0; i < values.size(); i += 32) {
        quantize_block(type, values.subspan(i, 32), out);
      }
      return out;
    default:
      throw std::invalid_argument("this type is not written");
  }
}

}  // namespace pagefold::testing
