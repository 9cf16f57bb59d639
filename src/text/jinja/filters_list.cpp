// Filters on sequences and mappings.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/ops.h"
#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

Result<Value> length(Interp&, const Value& v, const Args& args) {
  PF_TRY(args.only("length", 0));
  switch (v.kind) {
    case Kind::undefined:
      return Value::integer(0);
    case Kind::string:
      return Value::integer(static_cast<int64_t>(count_code_points(v.str())));
    case Kind::dict:
      return Value::integer(static_cast<int64_t>(v.dict().entries.size()));
    case Kind::tuple:
      return Value::integer(static_cast<int64_t>(v.items().size()));
    case Kind::list:
      if (v.list().flavor == Flavor::generator) break;
      return Value::integer(static_cast<int64_t>(v.items().size()));
    default:
      break;
  }
  return bad_input("a {} has no length", type_name(v));
}

Result<Value> first(Interp& in, const Value& v, const Args&) {
  PF_ASSIGN(const std::vector<Value> items, in.iterate(v));
  if (items.empty()) return in.heap().undefined("no first item, the sequence was empty");
  return items.front();
}
Result<Value> last(Interp& in, const Value& v, const Args&) {
  if (v.is(Kind::list) && v.list().flavor == Flavor::generator) {
    return bad_input("a generator has no last item; make it a list first");
  }
  PF_ASSIGN(const std::vector<Value> items, in.iterate(v));
  if (items.empty()) return in.heap().undefined("no last item, the sequence was empty");
  return items.back();
}

Result<Value> join(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("join", 2, {"d", "attribute"}));
  std::string separator, out;
  if (const Value* d = args.get(0, "d")) {
    PF_TRY(append_str(in.heap(), separator, *d));
  }
  const Value* attribute = given(args, 1, "attribute");
  PF_ASSIGN(const std::vector<Value> items, in.iterate(v));
  for (size_t i = 0; i < items.size(); ++i) {
    PF_TRY(in.heap().room(out.size() + separator.size()));
    PF_TRY(in.heap().work(64 + separator.size()));
    if (i > 0) out += separator;
    Value item = items[i];
    if (attribute) {
      PF_ASSIGN(item, attribute_path(in, item, *attribute));
    }
    PF_TRY(append_str(in.heap(), out, item));
  }
  return in.heap().str(std::move(out));
}

Result<Value> to_list(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("list", 0));
  PF_ASSIGN(std::vector<Value> items, in.iterate(v));
  return in.heap().list(std::move(items));
}

Result<Value> reverse(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("reverse", 0));
  if (v.is_undefined()) return undefined_error(v);
  PF_ASSIGN(std::vector<Value> items, in.iterate(v));
  std::reverse(items.begin(), items.end());
  if (!v.is(Kind::string)) return in.heap().list(std::move(items), Flavor::generator);
  std::string out;
  for (const Value& c : items) out += c.str();
  return in.heap().str(std::move(out));
}

struct Keyed {
  Value key, item;
};

// Sorts by key; the first comparison that fails decides the result.
Status sort_keyed(Interp& in, std::vector<Keyed>& items, bool descending) {
  Status failure = ok_status();
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    if (!failure.ok()) return false;
    const auto r = descending ? less(in.heap(), b.key, a.key) : less(in.heap(), a.key, b.key);
    if (!r.ok()) failure = r.status();
    return r.ok() && *r;
  });
  return failure;
}

// Keys of "a,b" are the tuple of both.
Result<std::vector<Keyed>> keyed(Interp& in, const Value& v, const Value* attribute, bool exact) {
  PF_ASSIGN(const std::vector<Value> items, in.iterate(v));
  std::vector<Keyed> out;
  for (const Value& item : items) {
    if (!attribute || !attribute->is(Kind::string) ||
        attribute->str().find(',') == std::string::npos) {
      PF_ASSIGN(Value key, sort_key(in, item, attribute, exact));
      out.push_back({std::move(key), item});
      continue;
    }
    std::vector<Value> parts;
    const std::string& all = attribute->str();
    for (size_t at = 0; at <= all.size();) {
      const size_t end = std::min(all.find(',', at), all.size());
      PF_ASSIGN(const Value path, in.heap().str(all.substr(at, end - at)));
      PF_ASSIGN(Value part, sort_key(in, item, &path, exact));
      parts.push_back(std::move(part));
      at = end + 1;
    }
    PF_ASSIGN(Value key, in.heap().tuple(std::move(parts)));
    out.push_back({std::move(key), item});
  }
  return out;
}

Result<Value> sort(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("sort", 3, {"reverse", "case_sensitive", "attribute"}));
  PF_ASSIGN(const bool descending, bool_arg(args, 0, "reverse", false));
  PF_ASSIGN(const bool exact, bool_arg(args, 1, "case_sensitive", false));
  PF_ASSIGN(std::vector<Keyed> items, keyed(in, v, given(args, 2, "attribute"), exact));
  PF_TRY(sort_keyed(in, items, descending));
  std::vector<Value> out;
  for (Keyed& k : items) out.push_back(std::move(k.item));
  return in.heap().list(std::move(out));
}

Result<Value> dictsort(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("dictsort", 3, {"case_sensitive", "by", "reverse"}));
  if (!v.is(Kind::dict)) return bad_input("dictsort needs a mapping, got {}", type_name(v));
  PF_ASSIGN(const bool exact, bool_arg(args, 0, "case_sensitive", false));
  PF_ASSIGN(const bool descending, bool_arg(args, 2, "reverse", false));
  bool by_value = false;
  if (const Value* by = args.get(1, "by")) {
    if (!by->is(Kind::string) || (by->str() != "key" && by->str() != "value")) {
      return bad_input("dictsort: 'by' is \"key\" or \"value\"");
    }
    by_value = by->str() == "value";
  }
  std::vector<Keyed> items;
  for (const auto& [key, value] : v.dict().entries) {
    PF_ASSIGN(Value k, sort_key(in, by_value ? value : key, nullptr, exact));
    PF_ASSIGN(Value pair, in.heap().tuple({key, value}));
    items.push_back({std::move(k), std::move(pair)});
  }
  PF_TRY(sort_keyed(in, items, descending));
  std::vector<Value> out;
  for (Keyed& k : items) out.push_back(std::move(k.item));
  return in.heap().list(std::move(out));
}

Result<Value> unique(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("unique", 2, {"case_sensitive", "attribute"}));
  PF_ASSIGN(const bool exact, bool_arg(args, 0, "case_sensitive", false));
  PF_ASSIGN(const std::vector<Keyed> items, keyed(in, v, given(args, 1, "attribute"), exact));
  std::unordered_map<std::string, bool> seen;
  std::vector<Value> out;
  for (const Keyed& k : items) {
    PF_ASSIGN(std::string key, hash_key(k.key));
    PF_TRY(in.heap().room(out.size() * sizeof(Value) + key.size()));
    if (seen.try_emplace(std::move(key), true).second) out.push_back(k.item);
  }
  return in.heap().list(std::move(out), Flavor::generator);
}

Result<Value> groupby(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("groupby", 3, {"attribute", "default", "case_sensitive"}));
  const Value* attribute = args.get(0, "attribute");
  if (!attribute) return bad_input("groupby needs an attribute");
  const Value* otherwise = args.get(1, "default");
  PF_ASSIGN(const bool exact, bool_arg(args, 2, "case_sensitive", false));
  PF_ASSIGN(const std::vector<Value> all, in.iterate(v));
  std::vector<Keyed> items;
  for (const Value& item : all) {
    PF_ASSIGN(Value key, attribute_path(in, item, *attribute, otherwise));
    PF_ASSIGN(key, sort_key(in, key, nullptr, exact));
    items.push_back({std::move(key), item});
  }
  PF_TRY(sort_keyed(in, items, false));
  std::vector<Value> out;
  for (size_t i = 0; i < items.size();) {
    std::vector<Value> group;
    const size_t start = i;
    bool same = true;
    for (; i < items.size() && same; i += same) {
      PF_ASSIGN(same, equal(in.heap(), items[start].key, items[i].key));
      if (same) group.push_back(items[i].item);
    }
    // The name of a group is as its first member has it, not in lower case.
    PF_ASSIGN(Value name, attribute_path(in, items[start].item, *attribute, otherwise));
    PF_ASSIGN(Value members, in.heap().list(std::move(group)));
    PF_ASSIGN(Value pair, in.heap().list({std::move(name), std::move(members)}, Flavor::group));
    pair.kind = Kind::tuple;
    out.push_back(std::move(pair));
  }
  return in.heap().list(std::move(out));
}

Result<Value> items_of(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("items", 0));
  if (v.is_undefined()) return in.heap().list({}, Flavor::generator);
  if (!v.is(Kind::dict)) return bad_input("items needs a mapping, got {}", type_name(v));
  std::vector<Value> pairs;
  for (const auto& [key, value] : v.dict().entries) {
    PF_ASSIGN(Value pair, in.heap().tuple({key, value}));
    pairs.push_back(std::move(pair));
  }
  return in.heap().list(std::move(pairs), Flavor::generator);
}

Result<Value> batch(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("batch", 2, {"linecount", "fill_with"}));
  PF_ASSIGN(const int64_t n, int_arg(args, 0, "linecount", 0));
  // Jinja compares lengths with n, so that without a positive n everything is one batch.
  const Value* fill = given(args, 1, "fill_with");
  PF_ASSIGN(const std::vector<Value> items, in.iterate(v));
  std::vector<Value> out, row;
  for (const Value& item : items) {
    if (n > 0 && static_cast<int64_t>(row.size()) == n) {
      PF_ASSIGN(Value full, in.heap().list(std::exchange(row, {})));
      out.push_back(std::move(full));
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (fill && n > static_cast<int64_t>(row.size())) {
      if (n > 100'000) return exhausted("batch: a row of {} is too long", n);
      row.resize(n, *fill);
    }
    PF_ASSIGN(Value full, in.heap().list(std::move(row)));
    out.push_back(std::move(full));
  }
  return in.heap().list(std::move(out), Flavor::generator);
}

Result<Value> slice(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("slice", 2, {"slices", "fill_with"}));
  PF_ASSIGN(const int64_t n, int_arg(args, 0, "slices", 0));
  if (n <= 0) return bad_input("slice needs a positive number of slices");
  if (n > 100'000) return exhausted("slice: {} slices are too many", n);
  const Value* fill = given(args, 1, "fill_with");
  PF_ASSIGN(const std::vector<Value> items, in.iterate(v));
  const int64_t each = static_cast<int64_t>(items.size()) / n;
  const int64_t longer = static_cast<int64_t>(items.size()) % n;
  std::vector<Value> out;
  auto at = items.begin();
  for (int64_t i = 0; i < n; ++i) {
    const auto end = at + each + (i < longer);
    std::vector<Value> part(at, end);
    if (fill && i >= longer && longer > 0)
      part.push_back(*fill);
    else if (fill && longer == 0)
      part.push_back(*fill);
    at = end;
    PF_ASSIGN(Value row, in.heap().list(std::move(part)));
    out.push_back(std::move(row));
  }
  return in.heap().list(std::move(out), Flavor::generator);
}

Result<Value> sum(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("sum", 2, {"attribute", "start"}));
  const Value* attribute = given(args, 0, "attribute");
  Value total = Value::integer(0);
  if (const Value* start = args.get(1, "start")) total = *start;
  if (total.is(Kind::string)) return bad_input("sum cannot add strings; use join");
  PF_ASSIGN(const std::vector<Value> items, in.iterate(v));
  for (Value item : items) {
    if (attribute) {
      PF_ASSIGN(item, attribute_path(in, item, *attribute));
    }
    PF_ASSIGN(total, arithmetic(in.heap(), Op::add, total, item));
    PF_TRY(in.heap().step());
  }
  return total;
}

template <bool largest>
Result<Value> extreme(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("min and max", 2, {"case_sensitive", "attribute"}));
  PF_ASSIGN(const bool exact, bool_arg(args, 0, "case_sensitive", false));
  PF_ASSIGN(const std::vector<Keyed> items, keyed(in, v, given(args, 1, "attribute"), exact));
  if (items.empty()) return in.heap().undefined("the sequence was empty");
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const Value& a = items[largest ? best : i].key;
    const Value& b = items[largest ? i : best].key;
    PF_ASSIGN(const bool better, less(in.heap(), a, b));
    if (better) best = i;
  }
  return items[best].item;
}

}  // namespace

const FilterTable& list_filters() {
  static const auto* table = new FilterTable{
      {"length", length},     {"count", length},  {"first", first},     {"last", last},
      {"join", join},         {"list", to_list},  {"reverse", reverse}, {"sort", sort},
      {"dictsort", dictsort}, {"unique", unique}, {"groupby", groupby}, {"items", items_of},
      {"batch", batch},       {"slice", slice},   {"sum", sum},         {"min", extreme<false>},
      {"max", extreme<true>},
  };
  return *table;
}

}  // namespace pagefold::jinja
