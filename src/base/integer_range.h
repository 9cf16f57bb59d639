// How every message says which integers are allowed: "an integer from 1 to 4096".
#pragma once

#include <fmt/core.h>

#include <string>

namespace pagefold {

template <class Low, class High>
std::string integer_range(Low low, High high) {
  return fmt::format("an integer from {} to {}", low, high);
}

}  // namespace pagefold
