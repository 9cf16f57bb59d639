// "format" of strings as regular expressions; each allows only what the format's RFC allows.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pagefold::grammar {

// nullopt: not known.
std::optional<std::string> format_regex(std::string_view format);

}  // namespace pagefold::grammar
