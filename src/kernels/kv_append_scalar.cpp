// Appending rows to the cache: the oracle of the vector files.
#include <algorithm>
#include <limits>

#include "kernels/attention_isa.h"
#include "kernels/strip_scalar.h"

namespace pagefold::kernels::scalar {
namespace {

constexpr float kLargestHalf = 65504.0f;

float through_half(float x) { return f16_to_f32(f32_to_f16(std::min(x, kLargestHalf))); }

int nearest(float x, float scale, float zero, float lo, float hi) {
  if (!(scale > 0.0f)) return 0;  // everything is zero, or NaN
  return static_cast<int>(std::clamp(std::nearbyint(x / scale + zero), lo, hi));
}

// One group of a slot's integers.
struct Group {
  float scale, zero;
  int code(DType type, float x) const {
    return type == DType::int8 ? nearest(x, scale, 0.0f, -127.0f, 127.0f)
                               : nearest(x, scale, zero, 0.0f, 15.0f);
  }
};

Group group_of(DType type, const float* x, int n) {
  float lo = 0.0f, hi = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
    lo = std::min(lo, x[i]);
    hi = std::max(hi, x[i]);
  }
  if (type == DType::int8) return {through_half(std::max(-lo, hi) / 127.0f), 0.0f};
  // Halves first: the span may overflow.
  const float scale = through_half((hi * 0.5f - lo * 0.5f) / 7.5f);
  const float zero = scale > 0.0f ? std::min(-lo / scale, 15.0f) : 0.0f;
  return {scale, through_half(zero)};
}

void store_code(DType type, bool keys, int code, bool high, std::byte* at) {
  const auto old = static_cast<unsigned>(*at);
  unsigned byte = static_cast<unsigned>(code + (keys ? 128 : 0));
  if (type == DType::int4)
    byte = high ? (old & 0x0fu) | static_cast<unsigned>(code) << 4
                : (old & 0xf0u) | static_cast<unsigned>(code);
  *at = static_cast<std::byte>(byte);
}

// K or V of one slot. Returns how many elements saturated.
unsigned store_row(const StripPart& part, const float* x, float fp8_scale, int slot) {
  const KvLayout& layout = part.layout;
  const DType type = part.type();
  auto writable = [](const std::byte* p) { return const_cast<std::byte*>(p); };
  unsigned saturated = 0;
  if (!dtype_has_scales(type)) {
    for (int d = 0; d < layout.head_dim; ++d)
      saturated += store_number(type, dtype_is_fp8(type) ? x[d] / fp8_scale : x[d],
                                writable(part.at(d, slot)));
    return saturated;
  }
  for (int g = 0; g < layout.groups(); ++g) {
    const int begin = layout.group_begin(g), end = layout.group_end(g);
    const Group group = group_of(type, x + begin, end - begin);
    std::byte* scale = writable(part.scales) + (g * kStripSlots + slot) * 2;
    store16(scale, f32_to_f16(group.scale));
    if (type == DType::int4) store16(scale + layout.zeros_after_scales(), f32_to_f16(group.zero));
    for (int d = begin; d < end; ++d)
      store_code(type, part.keys, group.code(type, x[d]), part.high_nibble(d, slot),
                 writable(part.at(d, slot)));
  }
  return 0;
}

}  // namespace

void kv_append(const KvLayout& layout, const KvAppendArgs& args) {
  uint64_t saturated = 0;
  for (int row = 0; row < args.rows; ++row) {
    const int64_t slot = args.first_slot + row;
    const int lane = static_cast<int>(slot % kStripSlots);
    const std::byte* strip = strip_of(layout, args.base, args.blocks, slot);
    saturated +=
        store_row(StripPart::k_of(layout, strip), args.k + row * args.ldk, args.k_scale, lane);
    saturated +=
        store_row(StripPart::v_of(layout, strip), args.v + row * args.ldv, args.v_scale, lane);
  }
  if (args.saturated != nullptr) *args.saturated += saturated;
}

}  // namespace pagefold::kernels::scalar
