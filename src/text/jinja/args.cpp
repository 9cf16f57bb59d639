#include <algorithm>

#include "text/jinja/interp.h"

namespace pagefold::jinja {

const Value* Args::get(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [n, v] : named) {
    if (n == name) return &v;
  }
  return nullptr;
}

Status Args::only(std::string_view what, size_t most,
                  std::initializer_list<std::string_view> names) const {
  if (positional.size() > most) {
    return bad_input("{} takes at most {} argument(s), got {}", what, most, positional.size());
  }
  size_t place = 0;
  for (const auto& [n, v] : named) {
    const auto it = std::find(names.begin(), names.end(), n);
    if (it == names.end()) return bad_input("{} takes no argument named '{}'", what, n);
    place = static_cast<size_t>(it - names.begin());
    if (place < positional.size()) return bad_input("{} got two values for '{}'", what, n);
  }
  return ok_status();
}

}  // namespace pagefold::jinja
