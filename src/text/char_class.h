// Classes of characters as Rust's and Oniguruma's Unicode support define them.
#pragma once

namespace pagefold {

bool is_space(char32_t c);      // White_Space
bool is_word_char(char32_t c);  // \w: letters, marks, decimal digits, connectors, joiners
bool is_numeric(char32_t c);    // general category N
// The crates that the reference uses here know Unicode 8 and 9 only; newer characters are none of
// these.
bool is_punctuation(char32_t c);  // general category P, and all ASCII punctuation
bool is_mark(char32_t c);         // general category M
bool is_nonspacing(char32_t c);   // general category Mn
bool is_control(char32_t c);      // general categories Cc, Cf and Co

}  // namespace pagefold
