#include "text/byte_map.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace pagefold {
namespace {

constexpr int kChars = 0x144;

struct Maps {
  std::array<uint16_t, 256> to_char{};
  std::array<int16_t, kChars> to_byte{};
  constexpr Maps() {
    to_byte.fill(-1);
    int next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
      to_char[b] = static_cast<uint16_t>(printable ? b : next++);
      to_byte[to_char[b]] = static_cast<int16_t>(b);
    }
  }
};
constexpr Maps kMaps;

}  // namespace

char32_t byte_to_char(unsigned char byte) { return kMaps.to_char[byte]; }
int char_to_byte(char32_t c) { return c < kChars ? kMaps.to_byte[c] : -1; }

void append_byte_chars(std::string_view bytes, std::string& out) {
  for (const char c : bytes) utf8_append(out, byte_to_char(static_cast<unsigned char>(c)));
}

bool append_char_bytes(std::string_view piece, std::string& out) {
  const size_t before = out.size();
  for (size_t pos = 0; pos < piece.size();) {
    const int byte = char_to_byte(utf8_next(piece, pos));
    if (byte < 0) return out.resize(before), false;
    out += static_cast<char>(byte);
  }
  return true;
}

}  // namespace pagefold
