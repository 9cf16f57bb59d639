#include "formats/quant/fp8.h"

#include <array>

namespace pagefold {
namespace {

constexpr std::array<float, 256> make_table() {
  std::array<float, 256> table{};
  for (unsigned c = 0; c < 256; ++c) table[c] = e4m3_to_f32(static_cast<uint8_t>(c));
  return table;
}
constexpr std::array<float, 256> kTable = make_table();

}  // namespace

float fp8_e4m3_value(uint8_t code) { return kTable[code]; }

}  // namespace pagefold
