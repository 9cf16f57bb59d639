// Words of messages.
#pragma once

#include <string>
#include <string_view>

namespace pagefold::calc {

// A word from outside as messages show it: at most 40 characters, what does not print as '?'.
inline std::string shown(std::string_view word) {
  std::string out(word.substr(0, 40));
  for (char& c : out) {
    if (c < 0x20 || c > 0x7e || c == '"' || c == '\\') c = '?';
  }
  return out;
}

inline std::string lower(std::string_view word) {
  std::string out(word);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Adds one more to a list "a, b".
inline void list(std::string& words, std::string_view word) {
  if (!words.empty()) words.append(", ");
  words.append(word);
}

}  // namespace pagefold::calc
