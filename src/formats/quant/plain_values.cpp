#include "formats/quant/plain_values.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "formats/quant/blocks.h"

namespace pagefold {

bool is_plain_float(TensorType type) {
  return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16;
}

float plain_value(TensorType type, const std::byte* bytes, int64_t i) {
  const auto* in = reinterpret_cast<const uint8_t*>(bytes);
  if (type == TensorType::F16) return quant::load_f16(in + 2 * i);
  if (type == TensorType::BF16) return bf16_to_f32(quant::load_u16(in + 2 * i));
  PF_CHECK(type == TensorType::F32, "not a plain type");
  float value;
  std::memcpy(&value, in + 4 * i, sizeof value);
  return value;
}

ScaleFacts scale_facts(TensorType type, const std::byte* bytes, int64_t n) {
  ScaleFacts facts;
  for (int64_t i = 0; i < n; ++i) {
    const float v = plain_value(type, bytes, i);
    if (!(std::abs(v) <= kMostScale) && facts.first_bad < 0) facts.first_bad = i;
    if (type != TensorType::F16 && f16_to_f32(f32_to_f16(v)) != v) facts.f16 = false;
  }
  return facts;
}

}  // namespace pagefold
