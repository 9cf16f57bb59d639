// Numbers between two bounds as text.
#pragma once

#include <optional>

#include "base/json.h"
#include "grammar/grammar.h"

namespace pagefold::grammar {

struct NumberBounds {
  // JSON numbers; null pointers: no bound.
  const Json* low = nullptr;
  const Json* high = nullptr;
  bool low_open = false, high_open = false;  // the bound itself does not count
};

// Plain decimals (no exponent), at most 15 digits after the point; integers have none.
ExprId number_range(Grammar& grammar, const NumberBounds& bounds, bool integer);

}  // namespace pagefold::grammar
