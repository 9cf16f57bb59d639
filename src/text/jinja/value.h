// Values of the template language: Python's None, bool, int (64 bits), float, str, list, tuple and
// dict, plus a few objects. Containers never change once built (templates come from model files:
// HF's sandbox refuses mutation too), so values share freely and cannot form cycles, except
// through namespaces and macros, which the interpreter takes apart at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pagefold::jinja {

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  object
};

// Live bytes of one render; objects give back what they took.
struct Meter {
  size_t live = 0;
};

struct Object {
  explicit Object(Meter* m = nullptr, size_t n = 0) : meter(m), bytes(n) {
    if (meter) meter->live += bytes;
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (meter) meter->live -= bytes;
  }
  Meter* meter;
  size_t bytes;
};

struct StringObj;
struct ListObj;
struct DictObj;
struct Special;

class Value {
 public:
  Value() = default;
  static Value none() { return Value(Kind::none); }
  static Value boolean(bool b) {
    Value v(Kind::boolean);
    v.i = b;
    return v;
  }
  static Value integer(int64_t n) {
    Value v(Kind::integer);
    v.i = n;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::real);
    v.d = d;
    return v;
  }
  Value(Kind k, std::shared_ptr<const Object> o) : kind(k), obj(std::move(o)) {}

  bool is(Kind k) const { return kind == k; }
  bool is_undefined() const { return kind == Kind::undefined; }
  // Python's bool is an int.
  bool is_int() const { return kind == Kind::integer || kind == Kind::boolean; }
  bool is_number() const { return is_int() || kind == Kind::real; }
  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }
  double as_double() const { return kind == Kind::real ? d : static_cast<double>(i); }
  const std::string& str() const;
  const std::vector<Value>& items() const;
  const ListObj& list() const;
  const DictObj& dict() const;
  const Special& special() const;

  Kind kind = Kind::undefined;
  union {
    int64_t i = 0;
    double d;
  };
  // StringObj for strings and for undefined values (what was missing, for messages; may be null).
  std::shared_ptr<const Object> obj;

 private:
  explicit Value(Kind k) : kind(k) {}
};

struct StringObj final : Object {
  StringObj(std::string s, Meter* m) : Object(m, s.size() + 64), text(std::move(s)) {}
  std::string text;
};

// Which Python type a sequence came from: it prints and indexes as that one.
enum class Flavor : uint8_t { plain, range, keys, values, pairs, generator, group };

struct ListObj final : Object {
  ListObj(std::vector<Value> v, Flavor f, int deep, Meter* m)
      : Object(m, v.size() * sizeof(Value) + 80), items(std::move(v)), flavor(f), depth(deep) {}
  std::vector<Value> items;
  Flavor flavor;
  int depth;
};

struct DictObj final : Object {
  using Entry = std::pair<Value, Value>;
  DictObj(std::vector<Entry> e, std::unordered_map<std::string, size_t> ix, int deep, Meter* m)
      : Object(m, e.size() * (sizeof(Entry) + (ix.empty() ? 0 : 96)) + 120),
        entries(std::move(e)),
        index(std::move(ix)),
        depth(deep) {}
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  std::vector<Entry> entries;
  std::unordered_map<std::string, size_t> index;  // by hash_key; empty for small dicts
  int depth;
};

// Functions, methods, macros, namespaces, loop, joiner, cycler.
struct Special : Object {
  enum class Type : uint8_t { function, method, macro, space, loop, joiner, cycler };
  Special(Type t, Meter* m, size_t n) : Object(m, n), type(t) {}
  Type type;
  int depth = 0;  // of the values it holds; the interpreter cuts namespaces and macros instead
};

int depth_of(const Value& v);

// Python's name of the type, for messages.
std::string_view type_name(const Value& v);
bool truthy(const Value& v);
// Equal keys give equal texts (1, 1.0 and True are one key); lists and dicts are not keys.
Result<std::string> hash_key(const Value& v);

// Makes values within the limits of one render and counts its work.
class Heap {
 public:
  Heap(size_t max_bytes, int64_t max_steps) : max_bytes_(max_bytes), steps_left_(max_steps) {}

  // One unit of work; about 64 bytes of text moved count as one.
  Status step(uint64_t n = 1);
  Status work(uint64_t bytes) { return step(bytes / 64); }
  // Fails when this much more would not fit. Called before anything large is built.
  Status room(uint64_t bytes) const;

  Result<Value> str(std::string s);
  Result<Value> str(std::string_view s) { return str(std::string(s)); }
  Result<Value> str(const char* s) { return str(std::string(s)); }
  Result<Value> list(std::vector<Value> items, Flavor flavor = Flavor::plain);
  Result<Value> tuple(std::vector<Value> items);
  // Later entries of the same key replace the value and keep the place.
  Result<Value> dict(std::vector<DictObj::Entry> entries);
  Value undefined(std::string what);
  Result<Value> from_json(const Json& json, int depth = 0);
  Meter* meter() { return &meter_; }

 private:
  Meter meter_;
  size_t max_bytes_;
  int64_t steps_left_;
};

Value make_literal(std::string s);

}  // namespace pagefold::jinja
