// map, select and their kin, and what all filters share.
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"

namespace pagefold::jinja {
namespace {

// Arguments after the first `n` positional ones.
Args rest_of(const Args& args, size_t n) {
  Args rest;
  rest.named = args.named;
  for (size_t i = n; i < args.positional.size(); ++i) rest.positional.push_back(args.positional[i]);
  return rest;
}

Result<Value> map(Interp& in, const Value& v, const Args& args) {
  const Value* attribute = nullptr;
  std::string filter;
  Args rest;
  if (args.positional.empty()) {
    PF_TRY(args.only("map", 0, {"attribute", "default"}));
    attribute = args.get(0, "attribute");
    if (!attribute) return bad_input("map needs the name of a filter or attribute=");
  } else {
    if (!args.positional[0].is(Kind::string)) return bad_input("map needs the name of a filter");
    filter = args.positional[0].str();
    rest = rest_of(args, 1);
  }
  PF_ASSIGN(const std::vector<Value> items, in.iterate(v));
  std::vector<Value> out;
  for (const Value& item : items) {
    PF_ASSIGN(Value mapped, attribute
                                ? attribute_path(in, item, *attribute, given(args, 9, "default"))
                                : in.apply_filter(filter, item, rest));
    out.push_back(std::move(mapped));
  }
  return in.heap().list(std::move(out), Flavor::generator);
}

template <bool keep, bool by_attribute>
Result<Value> select(Interp& in, const Value& v, const Args& args) {
  const size_t skip = by_attribute ? 1 : 0;
  if (args.positional.size() < skip) return bad_input("the name of an attribute is missing");
  std::string test;
  Args rest;
  if (args.positional.size() > skip) {
    if (!args.positional[skip].is(Kind::string)) return bad_input("the name of a test is needed");
    test = args.positional[skip].str();
    rest = rest_of(args, skip + 1);
  }
  PF_ASSIGN(const std::vector<Value> items, in.iterate(v));
  std::vector<Value> out;
  for (const Value& item : items) {
    PF_TRY(in.heap().step());
    Value tested = item;
    if (by_attribute) {
      PF_ASSIGN(tested, attribute_path(in, item, args.positional[0]));
    }
    bool holds = truthy(tested);
    if (!test.empty()) {
      PF_ASSIGN(holds, in.apply_test(test, tested, rest));
    }
    if (holds == keep) out.push_back(item);
  }
  return in.heap().list(std::move(out), Flavor::generator);
}

Result<Value> attr(Interp& in, const Value& v, const Args& args) {
  if (args.positional.size() != 1 || !args.positional[0].is(Kind::string)) {
    return bad_input("attr needs the name of an attribute");
  }
  if (v.is(Kind::dict) && !find_method(v, args.positional[0].str())) {
    return in.heap().undefined("a dict has no such attribute");  // attr never looks at items
  }
  return in.attribute(v, args.positional[0].str());
}

}  // namespace

Result<Value> attribute_path(Interp& in, const Value& item, const Value& path,
                             const Value* otherwise) {
  if (path.is_int()) {
    PF_ASSIGN(Value v, in.subscript(item, path));
    return v.is_undefined() && otherwise ? *otherwise : v;
  }
  if (!path.is(Kind::string)) return bad_input("an attribute is a string or an integer");
  const std::string& all = path.str();
  Value v = item;
  for (size_t at = 0; at <= all.size();) {
    const size_t end = std::min(all.find('.', at), all.size());
    const std::string part = all.substr(at, end - at);
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    Value key = Value::integer(number ? std::stoll(part) : 0);
    if (!number) {
      PF_ASSIGN(key, in.heap().str(part));
    }
    PF_ASSIGN(v, in.subscript(v, key));
    if (v.is_undefined() && otherwise) v = *otherwise;
    at = end + 1;
  }
  return v;
}

Result<Value> sort_key(Interp& in, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = item;
  if (attribute) {
    PF_ASSIGN(key, attribute_path(in, item, *attribute));
  }
  if (case_sensitive || !key.is(Kind::string)) return key;
  return in.heap().str(lower_text(key.str()));
}

const Value* given(const Args& args, size_t place, std::string_view name) {
  const Value* v = args.get(place, name);
  return v && !v->is(Kind::none) ? v : nullptr;
}

Result<bool> bool_arg(const Args& args, size_t place, std::string_view name, bool otherwise) {
  const Value* v = args.get(place, name);
  return v ? truthy(*v) : otherwise;
}

Result<int64_t> int_arg(const Args& args, size_t place, std::string_view name, int64_t otherwise) {
  const Value* v = args.get(place, name);
  if (!v) return otherwise;
  if (!v->is_int()) return bad_input("'{}' must be an integer, got {}", name, type_name(*v));
  return v->i;
}

const FilterTable& select_filters() {
  static const auto* table = new FilterTable{
      {"map", map},
      {"select", select<true, false>},
      {"reject", select<false, false>},
      {"selectattr", select<true, true>},
      {"rejectattr", select<false, true>},
      {"attr", attr},
  };
  return *table;
}

Filter find_filter(std::string_view name) {
  for (const FilterTable* t :
       {&text_filters(), &list_filters(), &select_filters(), &number_filters()}) {
    if (const auto it = t->find(name); it != t->end()) return it->second;
  }
  return nullptr;
}

}  // namespace pagefold::jinja
