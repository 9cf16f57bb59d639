// Python's operators and conversions on values.
#pragma once

#include "text/jinja/ast.h"

namespace pagefold::jinja {

Result<Value> arithmetic(Heap& heap, Op op, const Value& a, const Value& b);
Result<Value> negate(const Value& v, bool minus);
Result<bool> compare(Heap& heap, Op op, const Value& a, const Value& b);
Result<bool> equal(Heap& heap, const Value& a, const Value& b);
Result<bool> contains(Heap& heap, const Value& container, const Value& item);
// Less than, for sorting.
Result<bool> less(Heap& heap, const Value& a, const Value& b);

// str(v) and repr(v), appended; fail when the result gets too large.
Status append_str(Heap& heap, std::string& out, const Value& v);
Status append_repr(Heap& heap, std::string& out, const Value& v);
Result<std::string> to_str(Heap& heap, const Value& v);
// Python's repr of a float: the shortest text that reads back, as 1.0, 1e+16, inf, nan.
std::string float_repr(double d);

struct JsonStyle {
  int indent = -1;  // none
  std::string indent_text;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ascii = false;
  bool sort_keys = false;
};
Status append_json(Heap& heap, std::string& out, const Value& v, const JsonStyle& style);

// The bounds of v[start:stop:step] over n items, as Python clips them: first index, count, step.
struct SliceRange {
  int64_t first = 0, count = 0, step = 1;
};
Result<SliceRange> slice_range(size_t n, const Value& start, const Value& stop, const Value& step);

// "what is undefined" for an undefined value that was used.
Status undefined_error(const Value& v);

}  // namespace pagefold::jinja
