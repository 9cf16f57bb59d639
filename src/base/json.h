// JSON from outside: parsed by simdjson (UTF-8 and depth checked, sizes capped), handed on as an
// ordered tree. Include json.h only where a tree is really touched: the header is heavy.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

using Json = nlohmann::ordered_json;

// Errors give the position where known and never echo the input. Depth is limited before any
// recursion.
Result<Json> parse_json(std::string_view text, size_t max_depth = 64);

// Compact text. Never throws: invalid UTF-8 in strings becomes U+FFFD, NaN and infinity become
// null.
std::string dump_json(const Json& value);
// "..." with quotes, escaped; invalid UTF-8 becomes U+FFFD. For hand-written output on hot paths.
void append_json_string(std::string& out, std::string_view text);

// "string", "array", "number" ...: for "expected X, got Y" messages.
std::string_view json_kind(const Json& value);

}  // namespace pagefold
