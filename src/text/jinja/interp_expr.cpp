#include <algorithm>

#include "text/jinja/interp.h"
#include "text/jinja/ops.h"
#include "text/jinja/utf8.h"

namespace pagefold::jinja {

Result<Value> Interp::eval(const Expr& e) {
  if (e.kind == Ex::literal) return e.value;
  if (e.kind == Ex::name) {
    if (const Value* v = lookup(e.symbol)) return *v;
    return heap_.undefined(fmt::format("'{}' is undefined", e.text));
  }
  const Level level(*this);
  PF_TRY(level.check());
  PF_TRY(heap_.step());
  return eval_kind(e);
}

Result<Value> Interp::eval_kind(const Expr& e) {
  switch (e.kind) {
    case Ex::list:
    case Ex::tuple: {
      std::vector<Value> items;
      items.reserve(e.args.size());
      for (const auto& a : e.args) {
        PF_ASSIGN(Value v, eval(*a));
        items.push_back(std::move(v));
      }
      return e.kind == Ex::list ? heap_.list(std::move(items)) : heap_.tuple(std::move(items));
    }
    case Ex::dict:
      return eval_dict(e);
    case Ex::attribute: {
      PF_ASSIGN(const Value v, eval(*e.args[0]));
      return attribute(v, e.text);
    }
    case Ex::subscript: {
      PF_ASSIGN(const Value v, eval(*e.args[0]));
      PF_ASSIGN(const Value key, eval(*e.args[1]));
      return subscript(v, key);
    }
    case Ex::slice:
      return eval_slice(e);
    case Ex::call:
      return eval_call(e, nullptr);
    case Ex::filter:
      return eval_filter(e, nullptr);
    case Ex::test: {
      PF_ASSIGN(const Value v, eval(*e.args[0]));
      PF_ASSIGN(const Args args, eval_args(e));
      PF_ASSIGN(const bool b, apply_test(e.text, v, args));
      return Value::boolean(b);
    }
    case Ex::negate:
    case Ex::plus: {
      PF_ASSIGN(const Value v, eval(*e.args[0]));
      return negate(v, e.kind == Ex::negate);
    }
    case Ex::not_: {
      PF_ASSIGN(const Value v, eval(*e.args[0]));
      return Value::boolean(!truthy(v));
    }
    case Ex::chain:
      return eval_chain(e);
    case Ex::concat: {
      std::string text;
      for (const auto& a : e.args) {
        PF_ASSIGN(const Value v, eval(*a));
        PF_TRY(append_str(heap_, text, v));
      }
      return heap_.str(std::move(text));
    }
    case Ex::compare:
      return eval_compare(e);
    case Ex::and_:
    case Ex::or_: {
      Value v;
      for (const auto& a : e.args) {
        PF_ASSIGN(v, eval(*a));
        if (truthy(v) == (e.kind == Ex::or_)) break;
      }
      return v;
    }
    case Ex::choose: {
      PF_ASSIGN(const Value cond, eval(*e.args[1]));
      if (truthy(cond)) return eval(*e.args[0]);
      if (e.args[2]) return eval(*e.args[2]);
      return heap_.undefined("the inline if-expression is false and has no else");
    }
    default:
      return bad_input("internal: unknown expression");
  }
}

Result<Value> Interp::eval_chain(const Expr& e) {
  PF_ASSIGN(Value v, eval(*e.args[0]));
  for (size_t i = 0; i < e.ops.size(); ++i) {
    PF_TRY(heap_.step());
    PF_ASSIGN(const Value right, eval(*e.args[i + 1]));
    PF_ASSIGN(v, arithmetic(heap_, e.ops[i], v, right));
  }
  return v;
}

Result<Value> Interp::eval_compare(const Expr& e) {
  PF_ASSIGN(Value left, eval(*e.args[0]));
  for (size_t i = 0; i < e.ops.size(); ++i) {
    PF_ASSIGN(Value right, eval(*e.args[i + 1]));
    PF_ASSIGN(const bool holds, compare(heap_, e.ops[i], left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interp::eval_dict(const Expr& e) {
  std::vector<DictObj::Entry> entries;
  for (size_t i = 0; i + 1 < e.args.size(); i += 2) {
    PF_ASSIGN(Value k, eval(*e.args[i]));
    PF_ASSIGN(Value v, eval(*e.args[i + 1]));
    entries.emplace_back(std::move(k), std::move(v));
  }
  return heap_.dict(std::move(entries));
}

Result<Value> Interp::eval_slice(const Expr& e) {
  PF_ASSIGN(const Value v, eval(*e.args[0]));
  Value bounds[3];
  for (int i = 0; i < 3; ++i) {
    bounds[i] = Value::none();
    if (e.args[i + 1]) {
      PF_ASSIGN(bounds[i], eval(*e.args[i + 1]));
    }
  }
  const bool is_text = v.is(Kind::string);
  const bool sliceable =
      is_text || v.is(Kind::tuple) ||
      (v.is(Kind::list) && (v.list().flavor == Flavor::plain || v.list().flavor == Flavor::range));
  if (v.is_undefined()) return undefined_error(v);
  if (!sliceable) return heap_.undefined(fmt::format("'{}' cannot be sliced", type_name(v)));
  const size_t n = is_text ? count_code_points(v.str()) : v.items().size();
  PF_ASSIGN(const SliceRange r, slice_range(n, bounds[0], bounds[1], bounds[2]));
  if (!is_text) {
    std::vector<Value> items;
    PF_TRY(heap_.room(r.count * sizeof(Value)));
    for (int64_t i = 0; i < r.count; ++i) items.push_back(v.items()[r.first + i * r.step]);
    if (v.is(Kind::tuple)) return heap_.tuple(std::move(items));
    return heap_.list(std::move(items), v.list().flavor);
  }
  const std::string& s = v.str();
  PF_TRY(heap_.work(s.size()));
  if (r.step == 1 || r.count == 0) {
    if (r.count == 0) return heap_.str("");
    const size_t from = offset_of(s, r.first);
    return heap_.str(s.substr(from, offset_of(std::string_view(s).substr(from), r.count)));
  }
  std::vector<uint32_t> starts;
  PF_TRY(heap_.room(n * 4));
  starts.reserve(n);
  for (size_t i = 0; i < s.size(); i += utf8_width(s[i]))
    starts.push_back(static_cast<uint32_t>(i));
  std::string out;
  for (int64_t i = 0; i < r.count; ++i) {
    const uint32_t at = starts[r.first + i * r.step];
    out.append(s, at, utf8_width(s[at]));
  }
  return heap_.str(std::move(out));
}

Result<Args> Interp::eval_args(const Expr& e) {
  Args args;
  for (size_t i = 1; i < e.args.size(); ++i) {
    PF_ASSIGN(Value v, eval(*e.args[i]));
    args.positional.push_back(std::move(v));
  }
  for (const auto& k : e.keywords) {
    PF_ASSIGN(Value v, eval(*k.value));
    args.named.emplace_back(k.name, std::move(v));
  }
  if (e.star) {
    PF_ASSIGN(const Value v, eval(*e.star));
    PF_ASSIGN(const std::vector<Value> items, iterate(v));
    args.positional.insert(args.positional.end(), items.begin(), items.end());
  }
  if (e.star_star) {
    PF_ASSIGN(const Value v, eval(*e.star_star));
    if (!v.is(Kind::dict)) return bad_input("'**' needs a mapping, got {}", type_name(v));
    for (const auto& [key, value] : v.dict().entries) {
      if (!key.is(Kind::string)) return bad_input("names of arguments must be strings");
      args.named.emplace_back(key.str(), value);
    }
  }
  for (size_t i = 0; i < args.named.size(); ++i) {
    for (size_t k = 0; k < i && args.named.size() < 1000; ++k) {
      if (args.named[i].first == args.named[k].first) {
        return bad_input("the argument '{}' is given twice", args.named[i].first);
      }
    }
  }
  if (args.named.size() >= 1000) return exhausted("a call has too many named arguments");
  return args;
}

Result<Value> Interp::eval_call(const Expr& e, const Value* caller) {
  PF_ASSIGN(const Value f, eval(*e.args[0]));
  PF_ASSIGN(Args args, eval_args(e));
  if (caller) args.named.emplace_back("caller", *caller);
  return call(f, args);
}

Result<Value> Interp::call(const Value& callee, const Args& args) {
  PF_TRY(heap_.step());
  if (callee.is_undefined()) return undefined_error(callee);
  if (!callee.is(Kind::object))
    return bad_input("a value of type {} is not callable", type_name(callee));
  const Special& s = callee.special();
  switch (s.type) {
    case Special::Type::function:
      return static_cast<const Function&>(s).run(*this, args);
    case Special::Type::method: {
      const auto& m = static_cast<const BoundMethod&>(s);
      return m.run(*this, m.self, args);
    }
    case Special::Type::macro:
      return call_macro(static_cast<const Macro&>(s), args);
    case Special::Type::joiner: {
      const auto& j = static_cast<const Joiner&>(s);
      if (!std::exchange(j.used, true)) return heap_.str("");
      return j.separator;
    }
    default:
      return bad_input("a {} is not callable", type_name(callee));
  }
}

Result<Value> Interp::eval_filter(const Expr& e, const Value* innermost) {
  Value v;
  if (!e.args[0]) {
    v = *innermost;
  } else if (innermost && e.args[0]->kind == Ex::filter) {
    const Level level(*this);
    PF_TRY(level.check());
    PF_ASSIGN(v, eval_filter(*e.args[0], innermost));
  } else {
    PF_ASSIGN(v, eval(*e.args[0]));
  }
  PF_ASSIGN(const Args args, eval_args(e));
  return apply_filter(e.text, v, args);
}

Result<Value> Interp::apply_filter(const std::string& name, const Value& v, const Args& args) {
  PF_TRY(heap_.step());
  const Filter f = find_filter(name);
  if (!f) return unsupported("no filter named '{}'", name);
  auto result = f(*this, v, args);
  if (!result.ok()) return with_context(result.status(), "filter " + name);
  return result;
}

Result<bool> Interp::apply_test(const std::string& name, const Value& v, const Args& args) {
  PF_TRY(heap_.step());
  const Test t = find_test(name);
  if (!t) return unsupported("no test named '{}'", name);
  auto result = t(*this, v, args);
  if (!result.ok()) return with_context(result.status(), "test " + name);
  return result;
}

Result<std::vector<Value>> Interp::iterate(const Value& v) {
  std::vector<Value> items;
  switch (v.kind) {
    case Kind::undefined:
      return items;
    case Kind::list:
    case Kind::tuple:
      PF_TRY(heap_.step(v.items().size()));
      PF_TRY(heap_.room(v.items().size() * sizeof(Value)));
      return v.items();
    case Kind::dict:
      PF_TRY(heap_.step(v.dict().entries.size()));
      for (const auto& [key, value] : v.dict().entries) items.push_back(key);
      return items;
    case Kind::string: {
      const std::string& s = v.str();
      PF_TRY(heap_.room(s.size() * (sizeof(Value) + 100)));
      for (size_t i = 0; i < s.size(); i += utf8_width(s[i])) {
        PF_ASSIGN(Value c, heap_.str(s.substr(i, utf8_width(s[i]))));
        items.push_back(std::move(c));
        PF_TRY(heap_.step());
      }
      return items;
    }
    default:
      return bad_input("a value of type {} cannot be iterated", type_name(v));
  }
}

Result<Value> Interp::attribute(const Value& v, const std::string& name) {
  if (v.is_undefined()) return undefined_error(v);
  if (!name.empty() && name[0] == '_' && !v.is(Kind::dict)) {
    return heap_.undefined(fmt::format("access to the attribute '{}' is unsafe", name));
  }
  if (v.is(Kind::object)) {
    const Special& s = v.special();
    if (s.type == Special::Type::space) {
      for (const auto& [key, value] : static_cast<const Space&>(s).attributes) {
        if (key == name) return value;
      }
      return heap_.undefined(fmt::format("the namespace has no attribute '{}'", name));
    }
    if (s.type == Special::Type::loop) return loop_attribute(static_cast<const Loop&>(s), name);
    if (s.type == Special::Type::macro && name == "name") {
      return heap_.str(static_cast<const Macro&>(s).callee->name);
    }
    if (s.type == Special::Type::cycler && name == "current") {
      const auto& c = static_cast<const Cycler&>(s);
      return c.items[c.at];
    }
  }
  if (v.is(Kind::tuple) && v.list().flavor == Flavor::group && v.items().size() == 2) {
    if (name == "grouper") return v.items()[0];
    if (name == "list") return v.items()[1];
  }
  if (const Method m = find_method(v, name)) {
    PF_TRY(heap_.room(128));
    return make_special(std::make_shared<BoundMethod>(v, m, heap_.meter()));
  }
  if (v.is(Kind::dict)) {
    if (const Value* item = v.dict().find(name)) return *item;
  }
  return heap_.undefined(fmt::format("'{} object' has no attribute '{}'", type_name(v), name));
}

Result<Value> Interp::subscript(const Value& v, const Value& key) {
  if (v.is_undefined()) return undefined_error(v);
  if (v.is(Kind::dict)) {
    if (const Value* item = v.dict().find(key)) return *item;
  } else if (key.is_int() && (v.is_sequence() || v.is(Kind::string))) {
    const bool is_text = v.is(Kind::string);
    const bool indexed = is_text || v.is(Kind::tuple) || v.list().flavor == Flavor::plain ||
                         v.list().flavor == Flavor::range;
    const auto n = static_cast<int64_t>(is_text ? count_code_points(v.str()) : v.items().size());
    if (is_text) PF_TRY(heap_.work(v.str().size()));
    const int64_t i = key.i < 0 ? key.i + n : key.i;
    if (indexed && i >= 0 && i < n) {
      if (!is_text) return v.items()[i];
      const size_t at = offset_of(v.str(), i);
      return heap_.str(v.str().substr(at, utf8_width(v.str()[at])));
    }
    return heap_.undefined(fmt::format("'{} object' has no element {}", type_name(v), key.i));
  }
  if (key.is(Kind::string)) return attribute(v, key.str());
  return heap_.undefined(fmt::format("'{} object' has no such element", type_name(v)));
}

Result<Value> Interp::loop_attribute(const Loop& loop, const std::string& name) {
  const auto index = static_cast<int64_t>(loop.index0);
  if (name == "index0") return Value::integer(index);
  if (name == "index") return Value::integer(index + 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "last" || name == "nextitem") {
    PF_ASSIGN(const bool more, loop.reach(*this, loop.index0 + 1));
    if (name == "last") return Value::boolean(!more);
    if (more) return loop.seen[loop.index0 + 1];
    return heap_.undefined("there is no next item");
  }
  if (name == "previtem") {
    if (index > 0) return loop.seen[loop.index0 - 1];
    return heap_.undefined("there is no previous item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    PF_TRY(loop.reach(*this, loop.source.items().size()).status());
    const auto n = static_cast<int64_t>(loop.seen.size());
    return Value::integer(name == "length" ? n : name == "revindex" ? n - index : n - index - 1);
  }
  if (const Method m = find_method(Value(Kind::object, loop.shared()), name)) {
    return make_special(
        std::make_shared<BoundMethod>(Value(Kind::object, loop.shared()), m, heap_.meter()));
  }
  return heap_.undefined(fmt::format("'loop' has no attribute '{}'", name));
}

}  // namespace pagefold::jinja
