// Template text to tokens, with the white space rules of Jinja2 under trim_blocks and
// lstrip_blocks (lexer behaviour: Jinja documentation, "Whitespace Control").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagefold::jinja {

enum class Tok : uint8_t {
  data,
  print_begin,
  print_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  op,
  end
};

struct Token {
  Tok type = Tok::end;
  std::string text;  // strings: escapes resolved; numbers: no underscores; operators: as written
  int line = 1;
};

Result<std::vector<Token>> lex(std::string_view source);

}  // namespace pagefold::jinja
