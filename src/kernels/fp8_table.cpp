// Built by the compiler from the scalar conversions.
#include "base/fp8.h"
#include "kernels/attention_parts.h"

namespace pagefold::kernels {
namespace {

template <class Decode>
constexpr Fp8Table build(Decode decode) {
  Fp8Table table{};
  for (unsigned code = 0; code < 128; ++code) {
    const uint32_t bits = std::bit_cast<uint32_t>(decode(static_cast<uint8_t>(code)));
    table.low[code] = static_cast<uint8_t>(bits >> 16);
    table.high[code] = static_cast<uint8_t>(bits >> 24);
  }
  return table;
}

}  // namespace

constexpr Fp8Table kE4m3Table = build(e4m3_to_f32);
constexpr Fp8Table kE5m2Table = build(e5m2_to_f32);

}  // namespace pagefold::kernels
