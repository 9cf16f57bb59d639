// The filter tables and what they share.
#pragma once

#include <unordered_map>

#include "text/jinja/interp.h"

namespace pagefold::jinja {

using FilterTable = std::unordered_map<std::string_view, Filter>;
const FilterTable& text_filters();
const FilterTable& number_filters();
const FilterTable& list_filters();
const FilterTable& select_filters();

// item.a.b.0 of attribute="a.b.0"; otherwise: what undefined becomes (may be null).
Result<Value> attribute_path(Interp& in, const Value& item, const Value& path,
                             const Value* otherwise = nullptr);
// What values compare by: the attribute if one is given, lower case unless case_sensitive.
Result<Value> sort_key(Interp& in, const Value& item, const Value* attribute, bool case_sensitive);
Result<bool> bool_arg(const Args& args, size_t place, std::string_view name, bool otherwise);
Result<int64_t> int_arg(const Args& args, size_t place, std::string_view name, int64_t otherwise);
// The argument unless it is missing or none.
const Value* given(const Args& args, size_t place, std::string_view name);

}  // namespace pagefold::jinja
