// GPT-2's reversible map of bytes to printable characters: printable Latin-1 stays, the other 68
// bytes become U+0100 ... U+0143 in order.
#pragma once

#include <string>
#include <string_view>

namespace pagefold {

char32_t byte_to_char(unsigned char byte);
int char_to_byte(char32_t c);  // -1: stands for no byte
// Appends the map of every byte.
void append_byte_chars(std::string_view bytes, std::string& out);
// The bytes a piece stands for; false (and nothing appended) where a character stands for none.
bool append_char_bytes(std::string_view piece, std::string& out);

}  // namespace pagefold
