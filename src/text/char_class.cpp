#include "text/char_class.h"

#include <unicode/uchar.h>

namespace pagefold {
namespace {

uint32_t category(char32_t c) { return U_GET_GC_MASK(static_cast<UChar32>(c)); }

bool known_since(char32_t c, int version) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] < version || (age[0] == version && age[1] == 0);
}

}  // namespace

bool is_space(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)); }
bool is_word_char(char32_t c) {
  const auto u = static_cast<UChar32>(c);
  return (category(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(u, UCHAR_ALPHABETIC) || u_hasBinaryProperty(u, UCHAR_JOIN_CONTROL);
}
bool is_numeric(char32_t c) { return (category(c) & U_GC_N_MASK) != 0; }
bool is_punctuation(char32_t c) {
  const bool ascii = (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
                     (c >= 123 && c <= 126);
  // U+166D and U+111C9 were punctuation in Unicode 8.
  return ascii || c == 0x166D || c == 0x111C9 ||
         ((category(c) & U_GC_P_MASK) != 0 && known_since(c, 8));
}
bool is_mark(char32_t c) { return (category(c) & U_GC_M_MASK) != 0 && known_since(c, 9); }
bool is_nonspacing(char32_t c) { return (category(c) & U_GC_MN_MASK) != 0 && known_since(c, 8); }
bool is_control(char32_t c) {
  return (category(c) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0;
}

}  // namespace pagefold
