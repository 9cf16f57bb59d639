// A byte count in a JSON document.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"

namespace pagefold {

// object[key] as a number of bytes; nullopt when it is absent, negative or no integer.
inline std::optional<uint64_t> json_size(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) return std::nullopt;
  if (it->is_number_unsigned()) return it->get<uint64_t>();
  const int64_t value = it->get<int64_t>();
  return value < 0 ? std::nullopt : std::optional<uint64_t>(static_cast<uint64_t>(value));
}

}  // namespace pagefold
