// UTF-8 as Python's str sees it: indexes count code points, white space is Unicode's. All text in
// the template engine is valid UTF-8: sources are checked, context strings repaired.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pagefold::jinja {

bool valid_utf8(std::string_view s);
// Invalid bytes become U+FFFD.
std::string repair_utf8(std::string_view s);
void append_utf8(std::string& out, uint32_t code_point);
// Bytes of the code point that starts with this byte (valid text only).
inline size_t utf8_width(char lead) {
  const auto b = static_cast<unsigned char>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}
uint32_t decode_utf8(std::string_view s, size_t at);
size_t count_code_points(std::string_view s);
// Byte offset of the n-th code point; s.size() when there are fewer.
size_t offset_of(std::string_view s, size_t n);

// Python's str.isspace.
bool is_space(uint32_t c);
std::string_view trim_left(std::string_view s);
std::string_view trim_right(std::string_view s);

// Case of ASCII, Latin-1, Latin Extended-A, Greek and Cyrillic letters; others stay as they are.
uint32_t to_upper(uint32_t c);
uint32_t to_lower(uint32_t c);
// A letter: exact for ASCII and the scripts above, every other code point from U+00AA on that is
// not known punctuation, space or symbol counts as one.
bool is_alpha(uint32_t c);
bool is_cased(uint32_t c);
inline bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }

template <class F>
void for_each_code_point(std::string_view s, F&& f) {
  for (size_t i = 0; i < s.size(); i += utf8_width(s[i])) f(decode_utf8(s, i));
}

}  // namespace pagefold::jinja
