#include "text/utf8.h"

#include <algorithm>

namespace pagefold {

Utf8Step utf8_step(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(pos);
  if (lead < 0x80) return {1, true, false};
  const size_t n = utf8_length(lead);
  if (n == 1) return {1, false, false};
  // Only the second byte has a range of its own: no overlong forms, surrogates, or beyond U+10FFFF.
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  size_t i = 1;
  for (; i < n && pos + i < text.size(); ++i) {
    if (byte(pos + i) < low || byte(pos + i) > high) return {i, false, false};
    low = 0x80, high = 0xBF;
  }
  return i == n ? Utf8Step{n, true, false} : Utf8Step{i, false, true};
}

char32_t utf8_prev(std::string_view text, size_t& pos) {
  size_t start = pos - 1;
  while (start > 0 && pos - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) {
    --start;
  }
  pos = start;
  size_t at = start;
  return utf8_next(text, at);
}

void utf8_append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string utf8_of(char32_t c) {
  std::string out;
  utf8_append(out, c);
  return out;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    if (!step.valid) return false;
    pos += step.bytes;
  }
  return true;
}

std::string sanitize_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    if (step.valid) {
      out.append(text, pos, step.bytes);
    } else {
      out += kReplacementChar;
    }
    pos += step.bytes;
  }
  return out;
}

}  // namespace pagefold
