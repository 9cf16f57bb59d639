// Tests: `x is name`.
#include <algorithm>
#include <unordered_map>

#include "text/jinja/interp.h"
#include "text/jinja/ops.h"
#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

using K = Kind;

template <class F>
constexpr Test plain(F) {
  return [](Interp&, const Value& v, const Args& args) -> Result<bool> {
    PF_TRY(args.only("the test", 0));
    return F{}(v);
  };
}

Result<const Value*> operand(const Args& args) {
  if (args.positional.size() != 1 || !args.named.empty()) {
    return bad_input("the test needs one argument");
  }
  return &args.positional[0];
}

template <Op op>
Result<bool> compares(Interp& in, const Value& v, const Args& args) {
  PF_ASSIGN(const Value* other, operand(args));
  return compare(in.heap(), op, v, *other);
}

Result<bool> modulo_is(const Value& v, int64_t by, int64_t wanted) {
  if (v.is(K::real)) {
    const double m = v.d - static_cast<double>(by) * static_cast<int64_t>(v.d / by);
    return m == static_cast<double>(wanted);
  }
  if (!v.is_int()) {
    if (v.is_undefined()) return undefined_error(v);
    return bad_input("a number is needed, got {}", type_name(v));
  }
  if (by == 0) return bad_input("division by zero");
  if (by == -1) return wanted == 0;
  return ((v.i % by) + by) % by == wanted;
}

Result<bool> odd(Interp&, const Value& v, const Args&) { return modulo_is(v, 2, 1); }
Result<bool> even(Interp&, const Value& v, const Args&) { return modulo_is(v, 2, 0); }
Result<bool> divisible(Interp&, const Value& v, const Args& args) {
  const Value* by = args.get(0, "num");
  if (!by || !by->is_int()) return bad_input("divisibleby needs an integer");
  if (by->i == INT64_MIN) return unsupported("divisibleby with so large a number");
  return modulo_is(v, by->i < 0 ? -by->i : by->i, 0);
}

// Python's islower and isupper of str(v): some cased letter, and none of the other case.
Result<bool> has_case(Interp& in, const Value& v, bool upper) {
  PF_ASSIGN(const std::string s, to_str(in.heap(), v));
  bool any = false, other = false;
  for_each_code_point(s, [&](uint32_t c) {
    if (!is_cased(c)) return;
    any = true;
    other |= upper ? to_upper(c) != c : to_lower(c) != c;
  });
  return any && !other;
}
Result<bool> is_lower(Interp& in, const Value& v, const Args&) { return has_case(in, v, false); }
Result<bool> is_upper(Interp& in, const Value& v, const Args&) { return has_case(in, v, true); }

bool is_iterable(const Value& v) {
  return v.is(K::string) || v.is_sequence() || v.is(K::dict) || v.is_undefined() ||
         (v.is(K::object) && v.special().type == Special::Type::loop);
}
bool is_sequence(const Value& v) {
  if (v.is(K::list)) return v.list().flavor == Flavor::plain || v.list().flavor == Flavor::range;
  return v.is(K::string) || v.is(K::tuple) || v.is(K::dict) || v.is_undefined();
}
bool is_callable(const Value& v) {
  return v.is_undefined() || (v.is(K::object) && v.special().type != Special::Type::space &&
                              v.special().type != Special::Type::cycler);
}

Result<bool> in_test(Interp& in, const Value& v, const Args& args) {
  PF_ASSIGN(const Value* where, operand(args));
  return contains(in.heap(), *where, v);
}
Result<bool> same_as(Interp& in, const Value& v, const Args& args) {
  PF_ASSIGN(const Value* other, operand(args));
  if (v.kind != other->kind) return false;
  if (v.is(K::string)) return equal(in.heap(), v, *other);
  if (v.obj) return v.obj == other->obj;
  return v.is(K::none) || v.is_undefined() || v.i == other->i;
}
Result<bool> names_filter(Interp&, const Value& v, const Args&) {
  return v.is(K::string) && find_filter(v.str()) != nullptr;
}
Result<bool> names_test(Interp&, const Value& v, const Args&) {
  return v.is(K::string) && find_test(v.str()) != nullptr;
}

}  // namespace

Test find_test(std::string_view name) {
  static const auto* table = new std::unordered_map<std::string_view, Test>{
      {"defined", plain([](const Value& v) { return !v.is_undefined(); })},
      {"undefined", plain([](const Value& v) { return v.is_undefined(); })},
      {"none", plain([](const Value& v) { return v.is(K::none); })},
      {"boolean", plain([](const Value& v) { return v.is(K::boolean); })},
      {"true", plain([](const Value& v) { return v.is(K::boolean) && v.i != 0; })},
      {"false", plain([](const Value& v) { return v.is(K::boolean) && v.i == 0; })},
      {"integer", plain([](const Value& v) { return v.is(K::integer); })},
      {"float", plain([](const Value& v) { return v.is(K::real); })},
      {"number", plain([](const Value& v) { return v.is_number(); })},
      {"string", plain([](const Value& v) { return v.is(K::string); })},
      {"mapping", plain([](const Value& v) { return v.is(K::dict); })},
      {"iterable", plain([](const Value& v) { return is_iterable(v); })},
      {"sequence", plain([](const Value& v) { return is_sequence(v); })},
      {"callable", plain([](const Value& v) { return is_callable(v); })},
      {"escaped", plain([](const Value&) { return false; })},
      {"odd", odd},
      {"even", even},
      {"divisibleby", divisible},
      {"lower", is_lower},
      {"upper", is_upper},
      {"in", in_test},
      {"sameas", same_as},
      {"filter", names_filter},
      {"test", names_test},
      {"eq", compares<Op::eq>},
      {"equalto", compares<Op::eq>},
      {"==", compares<Op::eq>},
      {"ne", compares<Op::ne>},
      {"!=", compares<Op::ne>},
      {"lt", compares<Op::lt>},
      {"lessthan", compares<Op::lt>},
      {"<", compares<Op::lt>},
      {"le", compares<Op::le>},
      {"<=", compares<Op::le>},
      {"gt", compares<Op::gt>},
      {"greaterthan", compares<Op::gt>},
      {">", compares<Op::gt>},
      {"ge", compares<Op::ge>},
      {">=", compares<Op::ge>},
  };
  const auto it = table->find(name);
  return it == table->end() ? nullptr : it->second;
}

}  // namespace pagefold::jinja
