// Parts of json_schema: schemas that hold at once as one schema, and what may be said in names.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace pagefold::grammar {

// A client's name in a message: letters, digits, _ $ and - of at most 40 characters, else "...".
std::string shown_name(std::string_view name);
bool is_annotation(std::string_view keyword);

// What both allow; `false` when nothing is. Keywords whose meet is no keyword are refused with
// `path`. $ref is not followed: at most one of the two may have it.
Result<Json> merge_schemas(const Json& a, const Json& b, const std::string& path, int depth = 0);

// Whether no value can fit both: different types, or different constants in a required member.
bool surely_disjoint(const Json& a, const Json& b);

// "type" as a list, "integer" beside "number" dropped; empty when absent.
std::vector<std::string> types_of(const Json& schema);

}  // namespace pagefold::grammar
