// JSON schemas (2020-12 and draft 7, as far as they can be followed byte by byte) as grammars.
//
// Understood: type (one or a list), properties, required, additionalProperties, minProperties and
// maxProperties and propertyNames (of maps), items, prefixItems, minItems, maxItems, minLength,
// maxLength, pattern, format (date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid,
// uri), minimum, maximum, exclusiveMinimum, exclusiveMaximum, enum, const, anyOf, oneOf (as anyOf
// where the branches cannot both hold), allOf (merged), $ref to #, #/... with recursion, nullable,
// booleans. Annotations have no effect. Anything else is refused with its name and path.
//
// Stricter than the standard, so that answers end: members come in the order of `properties`;
// without additionalProperties an object that lists properties has no others; a schema that
// constrains one kind of value is taken to be of that kind. Every answer is valid.
#pragma once

#include "base/json.h"
#include "grammar/grammar.h"

namespace pagefold::grammar {

inline constexpr size_t kMaxSchemaParts = 20'000;

Result<ExprId> schema_expr(Grammar& grammar, const Json& schema);
// Any JSON object; nesting is bounded by Network::kMaxDepth.
ExprId json_object_expr(Grammar& grammar);

}  // namespace pagefold::grammar
