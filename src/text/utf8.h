// UTF-8 in small pieces. "Valid" text has passed sanitize(); the cheap readers below rely on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pagefold {

inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the character that starts with `lead`; 1 for a byte that starts none.
constexpr size_t utf8_length(unsigned char lead) {
  return lead < 0x80   ? 1
         : lead < 0xC2 ? 1
         : lead < 0xE0 ? 2
         : lead < 0xF0 ? 3
         : lead < 0xF5 ? 4
                       : 1;
}

struct Utf8Step {
  size_t bytes;     // how far to go on; at least 1 while text is left
  bool valid;       // a whole character
  bool incomplete;  // not valid, but the text's end cut a character that began well
};
// One step of the Unicode "maximal subpart" practice: what one U+FFFD stands for.
Utf8Step utf8_step(std::string_view text, size_t pos);

// The character at `pos` of valid text; moves pos behind it.
inline char32_t utf8_next(std::string_view text, size_t& pos) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(pos);
  const size_t n = utf8_length(lead);
  if (n == 1 || pos + n > text.size()) return ++pos, lead;
  char32_t c = lead & (0xFFu >> (n + 1));
  for (size_t i = 1; i < n; ++i) c = (c << 6) | (byte(pos + i) & 0x3Fu);
  pos += n;
  return c;
}
// The character that ends before `pos` (> 0) of valid text; moves pos to its start.
char32_t utf8_prev(std::string_view text, size_t& pos);

void utf8_append(std::string& out, char32_t c);
std::string utf8_of(char32_t c);

bool is_valid_utf8(std::string_view text);
// Every maximal invalid part becomes one U+FFFD.
std::string sanitize_utf8(std::string_view text);

}  // namespace pagefold
