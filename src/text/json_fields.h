// Typed look-ups in a parsed tokenizer.json. A vocabulary has hundreds of thousands of entries, so
// the file is read through simdjson's own tree instead of being copied into a Json.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

using JsonNode = simdjson::dom::element;

inline bool is_absent(const simdjson::simdjson_result<JsonNode>& node) {
  return node.error() != simdjson::SUCCESS || node.value_unsafe().is_null();
}

// The field of an object, or an error naming it.
inline Result<JsonNode> need_field(const JsonNode& object, std::string_view key) {
  auto found = object.at_key(key);
  if (is_absent(found)) return bad_data("field \"{}\" is missing", key);
  return found.value_unsafe();
}

// Absent or null gives the fallback; another type is an error.
template <class T>
Result<T> field_or(const JsonNode& object, std::string_view key, T fallback,
                   std::string_view wanted) {
  auto found = object.at_key(key);
  if (is_absent(found)) return fallback;
  T value;
  if (found.value_unsafe().get(value) != simdjson::SUCCESS) {
    return bad_data("field \"{}\" is not {}", key, wanted);
  }
  return value;
}
inline Result<bool> bool_field(const JsonNode& object, std::string_view key, bool fallback) {
  return field_or<bool>(object, key, fallback, "true or false");
}
inline Result<std::string_view> string_field(const JsonNode& object, std::string_view key,
                                             std::string_view fallback) {
  return field_or<std::string_view>(object, key, fallback, "a string");
}
inline Result<int64_t> int_field(const JsonNode& object, std::string_view key, int64_t fallback) {
  return field_or<int64_t>(object, key, fallback, "an integer");
}
inline Result<simdjson::dom::array> array_field(const JsonNode& object, std::string_view key) {
  PF_ASSIGN(const JsonNode node, need_field(object, key));
  simdjson::dom::array array;
  if (node.get(array) != simdjson::SUCCESS) return bad_data("field \"{}\" is not an array", key);
  return array;
}
// "type" of a step.
inline Result<std::string_view> type_of(const JsonNode& object) {
  if (!object.is_object()) return bad_data("an object with a \"type\" is expected");
  PF_TRY(need_field(object, "type").status());
  return string_field(object, "type", "");
}

}  // namespace pagefold
