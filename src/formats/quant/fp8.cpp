#include "formats/quant/fp8.h"

#include <array>
#include <bit>
#include <limits>

namespace pagefold {
namespace {

constexpr float decode(unsigned code) {
  const unsigned exp = (code >> 3) & 15, man = code & 7;
  if (exp == 15 && man == 7) return std::numeric_limits<float>::quiet_NaN();
  const uint32_t sign = (code & 0x80u) << 24;
  if (exp == 0) {  // man * 2^-9
    const float magnitude = static_cast<float>(man) * 0x1p-9f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exp + 120u) << 23) | (man << 20));
}

constexpr std::array<float, 256> make_table() {
  std::array<float, 256> table{};
  for (unsigned c = 0; c < 256; ++c) table[c] = decode(c);
  return table;
}
constexpr std::array<float, 256> kTable = make_table();

}  // namespace

float fp8_e4m3_value(uint8_t code) { return kTable[code]; }

uint8_t fp8_e4m3_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u, abs = bits & 0x7fffffffu;
  if (abs > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (std::bit_cast<float>(abs) >= kFp8Max) return static_cast<uint8_t>(sign | 0x7eu);
  if (abs < 0x3c800000u) {  // below 2^-6: the sum's last bit is worth 2^-9
    const float sum = std::bit_cast<float>(abs) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x46800000u));
  }
  const uint32_t rounded = abs + 0x7ffffu + ((abs >> 20) & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

}  // namespace pagefold
