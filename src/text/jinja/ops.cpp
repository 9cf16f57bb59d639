#include "text/jinja/ops.h"

#include <cmath>

#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

Status overflow() { return bad_input("an integer does not fit in 64 bits"); }

Status type_error(std::string_view op, const Value& a, const Value& b) {
  return bad_input("unsupported operand types for {}: '{}' and '{}'", op, type_name(a),
                   type_name(b));
}

std::string_view op_text(Op op) {
  static constexpr std::string_view kText[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kText[static_cast<size_t>(op)];
}

Result<Value> int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return bad_input("0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value::integer(result);
}

Result<Value> int_math(Op op, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (op) {
    case Op::add:
      return __builtin_add_overflow(a, b, &r) ? Result<Value>(overflow()) : Value::integer(r);
    case Op::sub:
      return __builtin_sub_overflow(a, b, &r) ? Result<Value>(overflow()) : Value::integer(r);
    case Op::mul:
      return __builtin_mul_overflow(a, b, &r) ? Result<Value>(overflow()) : Value::integer(r);
    case Op::pow:
      return int_pow(a, b);
    default:
      break;
  }
  if (b == 0) return bad_input("division by zero");
  if (op == Op::div) return Value::real(static_cast<double>(a) / static_cast<double>(b));
  if (a == INT64_MIN && b == -1) {
    if (op == Op::mod) return Value::integer(0);
    return overflow();
  }
  int64_t q = a / b, m = a % b;
  if (m != 0 && (m < 0) != (b < 0)) --q, m += b;  // Python rounds down
  return Value::integer(op == Op::mod ? m : q);
}

Result<Value> real_math(Op op, double a, double b) {
  switch (op) {
    case Op::add:
      return Value::real(a + b);
    case Op::sub:
      return Value::real(a - b);
    case Op::mul:
      return Value::real(a * b);
    case Op::pow: {
      if (a == 0 && b < 0) return bad_input("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) return bad_input("a power is not a real number");
      const double r = std::pow(a, b);
      if (std::isinf(r) && std::isfinite(a) && std::isfinite(b))
        return bad_input("a power is too large");
      return Value::real(r);
    }
    default:
      break;
  }
  if (b == 0) return bad_input("division by zero");
  if (op == Op::div) return Value::real(a / b);
  double m = std::fmod(a, b);
  double q = (a - m) / b;
  if (m != 0) {
    if ((b < 0) != (m < 0)) m += b, q -= 1;
  } else {
    m = std::copysign(0.0, b);
  }
  if (op == Op::mod) return Value::real(m);
  if (q == 0) return Value::real(std::copysign(0.0, a / b));
  double f = std::floor(q);
  if (q - f > 0.5) f += 1;
  return Value::real(f);
}

Result<Value> repeat(Heap& heap, const Value& v, int64_t times) {
  const auto n = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  const uint64_t unit = v.is(Kind::string) ? v.str().size() : v.items().size() * sizeof(Value);
  // Both factors are far below 2^32 or the product is refused anyway.
  if (unit > 0 && n > (uint64_t{1} << 40) / unit) {
    return exhausted("a repeated value is too large");
  }
  PF_TRY(heap.room(unit * n));
  if (v.is(Kind::string)) {
    std::string out;
    out.reserve(unit * n);
    if (unit > 0) {
      for (uint64_t i = 0; i < n; ++i) out += v.str();
    }
    return heap.str(std::move(out));
  }
  std::vector<Value> items;
  if (unit > 0) {
    items.reserve(v.items().size() * n);
    for (uint64_t i = 0; i < n; ++i) items.insert(items.end(), v.items().begin(), v.items().end());
  }
  return v.is(Kind::tuple) ? heap.tuple(std::move(items)) : heap.list(std::move(items));
}

bool plain_sequence(const Value& v) {
  return v.is(Kind::tuple) || (v.is(Kind::list) && v.list().flavor == Flavor::plain);
}

}  // namespace

Status undefined_error(const Value& v) {
  if (v.obj && !v.str().empty()) return bad_input("{}", v.str());
  return bad_input("an undefined value was used");
}

Result<Value> arithmetic(Heap& heap, Op op, const Value& a, const Value& b) {
  if (a.is_int() && b.is_int()) return int_math(op, a.i, b.i);
  if (a.is_number() && b.is_number()) return real_math(op, a.as_double(), b.as_double());
  if (a.is_undefined()) return undefined_error(a);
  if (op == Op::add && a.is(Kind::string) && b.is(Kind::string)) {
    PF_TRY(heap.room(a.str().size() + b.str().size()));
    return heap.str(a.str() + b.str());
  }
  if (op == Op::add && plain_sequence(a) && a.kind == b.kind && plain_sequence(b)) {
    PF_TRY(heap.room((a.items().size() + b.items().size()) * sizeof(Value)));
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::tuple) ? heap.tuple(std::move(items)) : heap.list(std::move(items));
  }
  if (op == Op::mul && b.is_int() && (a.is(Kind::string) || plain_sequence(a)))
    return repeat(heap, a, b.i);
  if (op == Op::mul && a.is_int() && (b.is(Kind::string) || plain_sequence(b)))
    return repeat(heap, b, a.i);
  if (op == Op::mod && a.is(Kind::string)) {
    return unsupported("'%' formatting of strings is not supported; use the filter 'format'");
  }
  if (b.is_undefined()) return undefined_error(b);
  return type_error(op_text(op), a, b);
}

Result<Value> negate(const Value& v, bool minus) {
  if (v.is(Kind::real)) return Value::real(minus ? -v.d : v.d);
  if (!v.is_int()) {
    if (v.is_undefined()) return undefined_error(v);
    return bad_input("bad operand type for a sign: '{}'", type_name(v));
  }
  if (minus && v.i == INT64_MIN) return overflow();
  return Value::integer(minus ? -v.i : v.i);
}

Result<bool> equal(Heap& heap, const Value& a, const Value& b) {
  PF_TRY(heap.step());
  if (a.is_int() && b.is_int()) return a.i == b.i;
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.kind != b.kind) return false;
  if (a.kind == Kind::none || a.kind == Kind::undefined) return true;
  if (a.is(Kind::string)) {
    PF_TRY(heap.work(std::min(a.str().size(), b.str().size())));
    return a.str() == b.str();
  }
  if (a.obj == b.obj) return true;
  if (a.is(Kind::object)) return false;
  if (a.is(Kind::dict)) {
    if (a.dict().entries.size() != b.dict().entries.size()) return false;
    for (const auto& [key, value] : a.dict().entries) {
      PF_TRY(heap.step());
      const Value* other = b.dict().find(key);
      if (!other) return false;
      PF_ASSIGN(const bool same, equal(heap, value, *other));
      if (!same) return false;
    }
    return true;
  }
  if (a.is(Kind::list) && a.list().flavor != b.list().flavor) return false;
  if (a.items().size() != b.items().size()) return false;
  for (size_t i = 0; i < a.items().size(); ++i) {
    PF_ASSIGN(const bool same, equal(heap, a.items()[i], b.items()[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> less(Heap& heap, const Value& a, const Value& b) {
  PF_TRY(heap.step());
  if (a.is_int() && b.is_int()) return a.i < b.i;
  if (a.is_number() && b.is_number()) return a.as_double() < b.as_double();
  if (a.is(Kind::string) && b.is(Kind::string)) {
    PF_TRY(heap.work(std::min(a.str().size(), b.str().size())));
    return a.str() < b.str();  // UTF-8 sorts as code points do
  }
  if (a.is_sequence() && a.kind == b.kind && plain_sequence(a) && plain_sequence(b)) {
    const size_t n = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < n; ++i) {
      PF_ASSIGN(const bool same, equal(heap, a.items()[i], b.items()[i]));
      if (!same) return less(heap, a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size();
  }
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  return type_error("<", a, b);
}

Result<bool> contains(Heap& heap, const Value& c, const Value& item) {
  switch (c.kind) {
    case Kind::undefined:
      return false;
    case Kind::string:
      if (!item.is(Kind::string)) {
        return bad_input("'in' on a string needs a string on the left, got {}", type_name(item));
      }
      PF_TRY(heap.work(c.str().size()));
      return c.str().find(item.str()) != std::string::npos;
    case Kind::dict:
      PF_TRY(hash_key(item).status());
      return c.dict().find(item) != nullptr;
    case Kind::list:
    case Kind::tuple:
      for (const Value& v : c.items()) {
        PF_ASSIGN(const bool same, equal(heap, v, item));
        if (same) return true;
      }
      return false;
    default:
      return bad_input("a value of type {} holds no items", type_name(c));
  }
}

Result<bool> compare(Heap& heap, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::eq:
      return equal(heap, a, b);
    case Op::ne: {
      PF_ASSIGN(const bool same, equal(heap, a, b));
      return !same;
    }
    case Op::in:
      return contains(heap, b, a);
    case Op::not_in: {
      PF_ASSIGN(const bool in, contains(heap, b, a));
      return !in;
    }
    case Op::lt:
      return less(heap, a, b);
    case Op::gt:
      return less(heap, b, a);
    default:
      break;
  }
  // a <= b is not the same as !(b < a) for NaN.
  PF_ASSIGN(const bool strict, op == Op::le ? less(heap, a, b) : less(heap, b, a));
  if (strict) return true;
  return equal(heap, a, b);
}

Result<SliceRange> slice_range(size_t size, const Value& start, const Value& stop,
                               const Value& step) {
  const auto n = static_cast<int64_t>(size);
  for (const Value* v : {&start, &stop, &step}) {
    if (!v->is(Kind::none) && !v->is_int())
      return bad_input("the bounds of a slice must be integers");
  }
  SliceRange r;
  r.step = step.is(Kind::none) ? 1 : step.i;
  if (r.step == 0) return bad_input("the step of a slice cannot be zero");
  r.step = std::max<int64_t>(r.step, -INT64_MAX);
  const bool down = r.step < 0;
  const auto clip = [&](const Value& v, int64_t otherwise) {
    if (v.is(Kind::none)) return otherwise;
    const int64_t i = v.i < 0 ? v.i + n : v.i;
    return std::clamp<int64_t>(i, down ? -1 : 0, down ? n - 1 : n);
  };
  r.first = clip(start, down ? n - 1 : 0);
  const int64_t end = clip(stop, down ? -1 : n);
  const int64_t span = down ? r.first - end : end - r.first;
  const int64_t stride = down ? -r.step : r.step;
  r.count = span <= 0 ? 0 : (span - 1) / stride + 1;
  return r;
}

}  // namespace pagefold::jinja
