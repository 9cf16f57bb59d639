// Methods of dict, list, tuple, loop and cycler. What changes a value is refused, as in HF's
// immutable sandbox.
#include <algorithm>
#include <unordered_map>

#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

Result<Value> refused(Interp&, const Value& v, const Args&) {
  return bad_input("templates may not change a {}", type_name(v));
}

Result<Value> dict_items(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("items", 0));
  std::vector<Value> pairs;
  PF_TRY(in.heap().room(v.dict().entries.size() * 256));
  for (const auto& [key, value] : v.dict().entries) {
    PF_ASSIGN(Value pair, in.heap().tuple({key, value}));
    pairs.push_back(std::move(pair));
  }
  return in.heap().list(std::move(pairs), Flavor::pairs);
}
Result<Value> dict_keys(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("keys", 0));
  std::vector<Value> keys;
  for (const auto& entry : v.dict().entries) keys.push_back(entry.first);
  return in.heap().list(std::move(keys), Flavor::keys);
}
Result<Value> dict_values(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("values", 0));
  std::vector<Value> values;
  for (const auto& entry : v.dict().entries) values.push_back(entry.second);
  return in.heap().list(std::move(values), Flavor::values);
}
Result<Value> dict_get(Interp&, const Value& v, const Args& args) {
  if (args.positional.empty() || args.positional.size() > 2 || !args.named.empty()) {
    return bad_input("get takes a key and a default");
  }
  PF_TRY(hash_key(args.positional[0]).status());
  if (const Value* found = v.dict().find(args.positional[0])) return *found;
  return args.positional.size() > 1 ? args.positional[1] : Value::none();
}
Result<Value> copy(Interp&, const Value& v, const Args& args) {
  PF_TRY(args.only("copy", 0));
  return v;  // values never change
}

Result<Value> list_index(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("index", 1));
  if (args.positional.empty()) return bad_input("index needs a value");
  for (size_t i = 0; i < v.items().size(); ++i) {
    PF_ASSIGN(const bool same, equal(in.heap(), v.items()[i], args.positional[0]));
    if (same) return Value::integer(static_cast<int64_t>(i));
  }
  return bad_input("index: the value is not in the list");
}
Result<Value> list_count(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("count", 1));
  if (args.positional.empty()) return bad_input("count needs a value");
  int64_t n = 0;
  for (const Value& item : v.items()) {
    PF_ASSIGN(const bool same, equal(in.heap(), item, args.positional[0]));
    n += same;
  }
  return Value::integer(n);
}

Result<Value> loop_cycle(Interp&, const Value& v, const Args& args) {
  if (args.positional.empty()) return bad_input("loop.cycle needs items");
  const auto& loop = static_cast<const Loop&>(v.special());
  return args.positional[loop.index0 % args.positional.size()];
}
Result<Value> loop_changed(Interp& in, const Value& v, const Args& args) {
  const auto& loop = static_cast<const Loop&>(v.special());
  bool same = loop.last_changed && loop.last_changed->size() == args.positional.size();
  for (size_t i = 0; same && i < args.positional.size(); ++i) {
    PF_ASSIGN(same, equal(in.heap(), (*loop.last_changed)[i], args.positional[i]));
  }
  loop.last_changed = args.positional;
  return Value::boolean(!same);
}

Result<Value> cycler_next(Interp&, const Value& v, const Args& args) {
  PF_TRY(args.only("next", 0));
  const auto& c = static_cast<const Cycler&>(v.special());
  const size_t at = c.at;
  c.at = (at + 1) % c.items.size();
  return c.items[at];
}
Result<Value> cycler_reset(Interp&, const Value& v, const Args& args) {
  PF_TRY(args.only("reset", 0));
  static_cast<const Cycler&>(v.special()).at = 0;
  return Value::none();
}

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Method find_method(const Value& self, std::string_view name) {
  switch (self.kind) {
    case Kind::string:
      return find_string_method(name);
    case Kind::dict:
      if (name == "items") return dict_items;
      if (name == "keys") return dict_keys;
      if (name == "values") return dict_values;
      if (name == "get") return dict_get;
      if (name == "copy") return copy;
      return one_of(name, {"update", "pop", "popitem", "clear", "setdefault", "fromkeys"})
                 ? refused
                 : nullptr;
    case Kind::list:
      if (self.list().flavor != Flavor::plain) return nullptr;
      if (name == "copy") return copy;
      if (one_of(name,
                 {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"})) {
        return refused;
      }
      [[fallthrough]];
    case Kind::tuple:
      if (name == "index") return list_index;
      return name == "count" ? list_count : nullptr;
    case Kind::object:
      if (self.special().type == Special::Type::loop) {
        return name == "cycle" ? loop_cycle : name == "changed" ? loop_changed : nullptr;
      }
      if (self.special().type == Special::Type::cycler) {
        return name == "next" ? cycler_next : name == "reset" ? cycler_reset : nullptr;
      }
      return nullptr;
    default:
      return nullptr;
  }
}

}  // namespace pagefold::jinja
