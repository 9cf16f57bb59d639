#include "text/jinja/value.h"

#include <cmath>

#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

// Deeper values are refused, so that walking one (printing, comparing, freeing) is safe recursion.
constexpr int kMaxDepth = 128;
constexpr size_t kIndexFrom = 9;

Result<int> depth_over(const std::vector<Value>& items) {
  int deep = 0;
  for (const Value& v : items) deep = std::max(deep, depth_of(v));
  if (deep >= kMaxDepth) return exhausted("a value is nested more than {} levels deep", kMaxDepth);
  return deep + 1;
}

}  // namespace

int depth_of(const Value& v) {
  if (v.is_sequence()) return v.list().depth;
  if (v.is(Kind::object)) return v.special().depth;
  return v.is(Kind::dict) ? v.dict().depth : 0;
}

const std::string& Value::str() const { return static_cast<const StringObj&>(*obj).text; }
const ListObj& Value::list() const { return static_cast<const ListObj&>(*obj); }
const std::vector<Value>& Value::items() const { return list().items; }
const DictObj& Value::dict() const { return static_cast<const DictObj&>(*obj); }
const Special& Value::special() const { return static_cast<const Special&>(*obj); }

const Value* DictObj::find(std::string_view key) const {
  if (!index.empty()) {
    const auto it = index.find("s" + std::string(key));
    return it == index.end() ? nullptr : &entries[it->second].second;
  }
  for (const auto& [k, v] : entries) {
    if (k.is(Kind::string) && k.str() == key) return &v;
  }
  return nullptr;
}

const Value* DictObj::find(const Value& key) const {
  if (key.is(Kind::string)) return find(std::string_view(key.str()));
  const auto wanted = hash_key(key);
  if (!wanted.ok()) return nullptr;
  if (!index.empty()) {
    const auto it = index.find(*wanted);
    return it == index.end() ? nullptr : &entries[it->second].second;
  }
  for (const auto& [k, v] : entries) {
    if (k.is(Kind::string)) continue;
    const auto have = hash_key(k);
    if (have.ok() && *have == *wanted) return &v;
  }
  return nullptr;
}

std::string_view type_name(const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::list:
      switch (v.list().flavor) {
        case Flavor::plain:
          return "list";
        case Flavor::range:
          return "range";
        case Flavor::keys:
          return "dict_keys";
        case Flavor::values:
          return "dict_values";
        case Flavor::pairs:
          return "dict_items";
        case Flavor::generator:
          return "generator";
        case Flavor::group:
          return "tuple";
      }
      return "list";
    case Kind::object:
      switch (v.special().type) {
        case Special::Type::function:
          return "function";
        case Special::Type::method:
          return "method";
        case Special::Type::macro:
          return "macro";
        case Special::Type::space:
          return "namespace";
        case Special::Type::loop:
          return "loop";
        case Special::Type::joiner:
          return "joiner";
        case Special::Type::cycler:
          return "cycler";
      }
  }
  return "value";
}

bool truthy(const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return v.i != 0;
    case Kind::real:
      return v.d != 0;
    case Kind::string:
      return !v.str().empty();
    case Kind::list:
      return v.list().flavor == Flavor::generator || !v.items().empty();
    case Kind::tuple:
      return !v.items().empty();
    case Kind::dict:
      return !v.dict().entries.empty();
    case Kind::object:
      return true;
  }
  return false;
}

Result<std::string> hash_key(const Value& v) {
  switch (v.kind) {
    case Kind::string:
      return "s" + v.str();
    case Kind::none:
      return std::string("n");
    case Kind::undefined:
      return std::string("u");
    case Kind::boolean:
    case Kind::integer:
      return fmt::format("i{}", v.i);
    case Kind::real:
      if (v.d == std::floor(v.d) && std::fabs(v.d) < 9e18) {
        return fmt::format("i{}", static_cast<int64_t>(v.d));
      }
      return fmt::format("f{}", v.d);
    case Kind::tuple: {
      std::string key = "t";
      for (const Value& item : v.items()) {
        PF_ASSIGN(const std::string part, hash_key(item));
        if (key.size() + part.size() > (1 << 20)) return exhausted("a dict key is too large");
        key += fmt::format("{}:{}", part.size(), part);
      }
      return key;
    }
    case Kind::object:
      return fmt::format("o{}", static_cast<const void*>(v.obj.get()));
    default:
      return bad_input("unhashable type: '{}'", type_name(v));
  }
}

Status Heap::step(uint64_t n) {
  if (n >= static_cast<uint64_t>(steps_left_)) {
    steps_left_ = 1;  // whatever runs next fails too
    return exhausted("the template does more work than the limit on steps allows");
  }
  steps_left_ -= static_cast<int64_t>(n);
  return ok_status();
}

Status Heap::room(uint64_t bytes) const {
  if (bytes > max_bytes_ || meter_.live + bytes > max_bytes_) {
    return exhausted("the template needs more than {} bytes for its values", max_bytes_);
  }
  return ok_status();
}

Result<Value> Heap::str(std::string s) {
  PF_TRY(room(s.size() + 64));
  PF_TRY(work(s.size()));
  return Value(Kind::string, std::make_shared<StringObj>(std::move(s), &meter_));
}

Result<Value> Heap::list(std::vector<Value> items, Flavor flavor) {
  PF_TRY(room(items.size() * sizeof(Value) + 80));
  PF_TRY(step(items.size()));
  PF_ASSIGN(const int depth, depth_over(items));
  return Value(Kind::list, std::make_shared<ListObj>(std::move(items), flavor, depth, &meter_));
}

Result<Value> Heap::tuple(std::vector<Value> items) {
  PF_ASSIGN(Value v, list(std::move(items)));
  v.kind = Kind::tuple;
  return v;
}

Result<Value> Heap::dict(std::vector<DictObj::Entry> entries) {
  PF_TRY(room(entries.size() * (sizeof(DictObj::Entry) + 96) + 120));
  PF_TRY(step(2 * entries.size()));
  int depth = 0;
  std::unordered_map<std::string, size_t> index;
  std::vector<DictObj::Entry> unique;
  unique.reserve(entries.size());
  for (auto& [k, v] : entries) {
    PF_ASSIGN(std::string key, hash_key(k));
    PF_TRY(work(key.size()));
    depth = std::max(depth, std::max(depth_of(k), depth_of(v)));
    const auto [it, fresh] = index.try_emplace(std::move(key), unique.size());
    if (fresh) {
      unique.emplace_back(std::move(k), std::move(v));
    } else {
      unique[it->second].second = std::move(v);
    }
  }
  if (depth >= kMaxDepth) return exhausted("a value is nested more than {} levels deep", kMaxDepth);
  if (unique.size() < kIndexFrom) index.clear();
  return Value(Kind::dict,
               std::make_shared<DictObj>(std::move(unique), std::move(index), depth + 1, &meter_));
}

Value Heap::undefined(std::string what) {
  return Value(Kind::undefined, std::make_shared<StringObj>(std::move(what), &meter_));
}

Value make_literal(std::string s) {
  return Value(Kind::string, std::make_shared<StringObj>(std::move(s), nullptr));
}

Result<Value> Heap::from_json(const Json& json, int depth) {
  if (depth >= kMaxDepth) return exhausted("the context is nested more than {} levels", kMaxDepth);
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none();
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto n = json.get<uint64_t>();
      if (n > INT64_MAX) return bad_input("the integer {} does not fit in 64 bits", n);
      return Value::integer(static_cast<int64_t>(n));
    }
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string: {
      const auto& s = json.get_ref<const std::string&>();
      return str(valid_utf8(s) ? s : repair_utf8(s));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) {
        PF_ASSIGN(Value v, from_json(item, depth + 1));
        items.push_back(std::move(v));
      }
      return list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<DictObj::Entry> entries;
      for (const auto& [key, item] : json.items()) {
        PF_ASSIGN(Value k, str(valid_utf8(key) ? key : repair_utf8(key)));
        PF_ASSIGN(Value v, from_json(item, depth + 1));
        entries.emplace_back(std::move(k), std::move(v));
      }
      return dict(std::move(entries));
    }
    default:
      return bad_input("the context holds a value that is not JSON");
  }
}

}  // namespace pagefold::jinja
