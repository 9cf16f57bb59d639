// Log lines go to stderr: stdout belongs to the answer. One line a call, thread-safe.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "base/result.h"

namespace pagefold::log {

enum class Level { debug, info, warn, error, off };

void write(Level level, std::string_view line);
void set_level(Level level);  // default info
bool enabled(Level level);
Result<Level> parse_level(std::string_view word);

template <class... A>
void debug(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void info(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::info)) write(Level::info, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void warn(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::warn)) write(Level::warn, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void error(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::error)) write(Level::error, fmt::format(f, std::forward<A>(a)...));
}

}  // namespace pagefold::log
