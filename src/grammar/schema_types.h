// The kinds of values of json_schema: objects, arrays, strings and numbers with their bounds.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "grammar/grammar.h"
#include "grammar/json_text.h"

namespace pagefold::grammar {

// What constrains one kind of value.
inline constexpr std::array kObjectWords = {"properties",           "required",
                                            "additionalProperties", "minProperties",
                                            "maxProperties",        "unevaluatedProperties",
                                            "propertyNames"};
inline constexpr std::array kArrayWords = {"items", "prefixItems", "additionalItems", "minItems",
                                           "maxItems"};
inline constexpr std::array kStringWords = {"minLength", "maxLength", "pattern"};
inline constexpr std::array kNumberWords = {"minimum", "maximum", "exclusiveMinimum",
                                            "exclusiveMaximum"};

template <class List>
bool in(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}
// The schema has one of these words.
template <class List>
bool any_of(const Json& schema, const List& words) {
  return std::any_of(words.begin(), words.end(), [&](const char* w) { return schema.contains(w); });
}

struct SchemaContext {
  Grammar& grammar;
  JsonText& text;
  // A schema inside the one at hand.
  std::function<Result<ExprId>(const Json& schema, const std::string& path, int depth)> schema;
};

// Values of one type ("object", "array" ...) that fit the schema's words for it.
Result<ExprId> typed_schema_expr(const std::string& type, const Json& schema,
                                 const std::string& path, int depth, const SchemaContext& context);

}  // namespace pagefold::grammar
