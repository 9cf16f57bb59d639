// Filters that make numbers, and the two kinds of string formatting.
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

// Text of a number without the white space and underscores Python allows; empty if malformed.
std::string number_text(const std::string& s) {
  const std::string_view t = trim_right(trim_left(s));
  std::string out;
  for (size_t i = 0; i < t.size(); ++i) {
    if (t[i] != '_') {
      out += t[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < t.size() &&
                         std::isalnum(static_cast<unsigned char>(t[i - 1])) &&
                         std::isalnum(static_cast<unsigned char>(t[i + 1]));
    if (!between) return {};
  }
  return out;
}

bool parse_int(const std::string& s, int base, int64_t& n) {
  std::string t = number_text(s);
  const bool minus = !t.empty() && t[0] == '-';
  if (!t.empty() && (t[0] == '-' || t[0] == '+')) t.erase(0, 1);
  if (t.size() > 2 && t[0] == '0') {
    const char p = static_cast<char>(t[1] | 32);
    const int named = p == 'x' ? 16 : p == 'o' ? 8 : p == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) t.erase(0, 2), base = named;
  }
  if (base == 0) base = 10;
  if (t.empty() || !std::isalnum(static_cast<unsigned char>(t[0]))) return false;
  if (minus) t.insert(0, "-");
  const auto [end, ec] = std::from_chars(t.data(), t.data() + t.size(), n, base);
  return ec == std::errc() && end == t.data() + t.size();
}

bool parse_float(const std::string& s, double& d) {
  std::string t = number_text(s);
  if (t.empty()) return false;
  if (t[0] == '+') t.erase(0, 1);
  if (t.empty() || t[0] == '+' || (t[0] == '-' && t.size() > 1 && t[1] == '+')) return false;
  const auto [end, ec] = std::from_chars(t.data(), t.data() + t.size(), d);
  if (end != t.data() + t.size() || t.find('(') != std::string::npos) return false;
  if (ec == std::errc::result_out_of_range) d = std::strtod(t.c_str(), nullptr);
  return ec != std::errc::invalid_argument;
}

Result<Value> to_int(Interp&, const Value& v, const Args& args) {
  PF_TRY(args.only("int", 2, {"default", "base"}));
  PF_ASSIGN(const int64_t base, int_arg(args, 1, "base", 10));
  if (base != 0 && (base < 2 || base > 36)) return bad_input("int: the base must be 0 or 2 to 36");
  const Value* given_default = args.get(0, "default");
  const Value otherwise = given_default ? *given_default : Value::integer(0);
  if (v.is_undefined()) return undefined_error(v);
  if (v.is_int()) return Value::integer(v.i);
  double d = 0;
  if (v.is(Kind::string)) {
    int64_t n = 0;
    if (parse_int(v.str(), static_cast<int>(base), n)) return Value::integer(n);
    if (!parse_float(v.str(), d)) return otherwise;
  } else if (v.is(Kind::real)) {
    d = v.d;
  } else {
    return otherwise;
  }
  if (!std::isfinite(d)) return otherwise;
  if (std::fabs(d) >= 9.2e18) return bad_input("an integer does not fit in 64 bits");
  return Value::integer(static_cast<int64_t>(d));
}

Result<Value> to_float(Interp&, const Value& v, const Args& args) {
  PF_TRY(args.only("float", 1, {"default"}));
  if (v.is_undefined()) return undefined_error(v);
  if (v.is_number()) return Value::real(v.as_double());
  double d = 0;
  if (v.is(Kind::string) && parse_float(v.str(), d)) return Value::real(d);
  const Value* otherwise = args.get(0, "default");
  return otherwise ? *otherwise : Value::real(0);
}

Result<Value> absolute(Interp&, const Value& v, const Args&) {
  if (v.is(Kind::real)) return Value::real(std::fabs(v.d));
  if (!v.is_int()) {
    if (v.is_undefined()) return undefined_error(v);
    return bad_input("abs needs a number, got {}", type_name(v));
  }
  if (v.i == INT64_MIN) return bad_input("an integer does not fit in 64 bits");
  return Value::integer(v.i < 0 ? -v.i : v.i);
}

// Round half to even on the exact value, as Python does: printf rounds that way.
double round_digits(double d, int64_t digits) {
  if (!std::isfinite(d) || digits > 300) return d;
  if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", d, digits).c_str(), nullptr);
  if (digits < -310) return std::copysign(0.0, d);
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(d / scale) * scale;
}

Result<Value> round(Interp&, const Value& v, const Args& args) {
  PF_TRY(args.only("round", 2, {"precision", "method"}));
  PF_ASSIGN(const int64_t digits, int_arg(args, 0, "precision", 0));
  std::string method = "common";
  if (const Value* m = args.get(1, "method")) {
    if (!m->is(Kind::string)) return bad_input("round: the method must be a string");
    method = m->str();
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return bad_input("round: the method must be common, ceil or floor");
  }
  if (!v.is_number()) {
    if (v.is_undefined()) return undefined_error(v);
    return bad_input("round needs a number, got {}", type_name(v));
  }
  if (method == "common") {
    if (!v.is_int()) return Value::real(round_digits(v.d, digits));
    if (digits >= 0) return Value::integer(v.i);
    return Value::integer(static_cast<int64_t>(round_digits(v.as_double(), digits)));
  }
  if (digits > 300 || digits < -300) return bad_input("round: the precision is out of range");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = v.as_double() * scale;
  if (!std::isfinite(scaled)) return bad_input("round: the number is too large");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

// One %-conversion of `arg`: flags and width are printf's.
Status convert(Interp& in, std::string& out, std::string_view flags, int width, int precision,
               char type, const Value& arg) {
  std::string body;
  if (type == 's' || type == 'r') {
    PF_TRY(type == 's' ? append_str(in.heap(), body, arg) : append_repr(in.heap(), body, arg));
    if (precision >= 0) body = body.substr(0, offset_of(body, precision));
  } else {
    if (!arg.is_number()) return bad_input("%{} needs a number, got {}", type, type_name(arg));
    std::string spec = "%";
    spec += flags;
    if (width >= 0) spec += std::to_string(width);
    if (precision >= 0) spec += "." + std::to_string(precision);
    char buffer[1024];
    if (type == 'd' || type == 'i' || type == 'u' || type == 'x' || type == 'X' || type == 'o') {
      if (!arg.is_int() && (type == 'x' || type == 'X' || type == 'o')) {
        return bad_input("%{} needs an integer", type);
      }
      if (!arg.is_int() && !(std::fabs(arg.d) < 9.2e18)) return bad_input("a number is too large");
      const int64_t n = arg.is_int() ? arg.i : static_cast<int64_t>(arg.d);
      if (n < 0 && (type == 'x' || type == 'X' || type == 'o')) {
        return unsupported("%{} of a negative number", type);
      }
      spec += std::string("ll") + (type == 'i' || type == 'u' ? 'd' : type);
      std::snprintf(buffer, sizeof(buffer), spec.c_str(), static_cast<long long>(n));
    } else {
      spec += type;
      std::snprintf(buffer, sizeof(buffer), spec.c_str(), arg.as_double());
    }
    out += buffer;
    return ok_status();
  }
  const int missing = std::max<int>(width - static_cast<int>(count_code_points(body)), 0);
  const bool left = flags.find('-') != std::string_view::npos;
  if (!left) out.append(missing, ' ');
  out += body;
  if (left) out.append(missing, ' ');
  return ok_status();
}

Result<Value> format(Interp& in, const Value& v, const Args& args) {
  if (!args.named.empty() && !args.positional.empty()) {
    return bad_input("format takes positional or named arguments, not both");
  }
  PF_ASSIGN(const std::string f, to_str(in.heap(), v));
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < f.size(); ++i) {
    if (f[i] != '%') {
      out += f[i];
      continue;
    }
    if (++i < f.size() && f[i] == '%') {
      out += '%';
      continue;
    }
    const Value* arg = nullptr;
    if (i < f.size() && f[i] == '(') {
      const size_t end = f.find(')', i);
      if (end == std::string::npos) return bad_input("'%(' is not closed");
      for (const auto& [name, value] : args.named) {
        if (name == f.substr(i + 1, end - i - 1)) arg = &value;
      }
      if (!arg) return bad_input("no argument for '%{}'", f.substr(i, end - i + 1));
      i = end + 1;
    }
    const size_t flags = i;
    while (i < f.size() && std::string_view("-+ #0").find(f[i]) != std::string_view::npos) ++i;
    const std::string_view flag_text =
        std::string_view(f).substr(flags, std::min<size_t>(i - flags, 8));
    const auto number = [&] {
      int n = -1;
      for (; i < f.size() && is_digit(static_cast<unsigned char>(f[i])) && n < 10'000; ++i) {
        n = std::max(n, 0) * 10 + (f[i] - '0');
      }
      return n;
    };
    const int width = number();
    int precision = -1;
    if (i < f.size() && f[i] == '.') {
      ++i;
      precision = std::max(number(), 0);
    }
    if (width > 200 || precision > 200) return exhausted("format: a width above 200");
    const char type = i < f.size() ? f[i] : '\0';
    if (type == '\0' || std::string_view("srdiuxXofFeEgG").find(type) == std::string_view::npos) {
      return bad_input("format: unsupported conversion '%{}'", type == '\0' ? ' ' : type);
    }
    if (!arg) {
      if (next >= args.positional.size()) return bad_input("format: not enough arguments");
      arg = &args.positional[next++];
    }
    PF_TRY(in.heap().room(out.size() + 1024));
    PF_TRY(convert(in, out, flag_text, width, precision, type, *arg));
  }
  if (args.named.empty() && next < args.positional.size()) {
    return bad_input("format: not all arguments were used");
  }
  return in.heap().str(std::move(out));
}

}  // namespace

// "{} {0} {name}".format(...): plain fields, no format specifications and no attributes.
Result<Value> format_method(Interp& in, const Value& v, const Args& args) {
  const std::string& f = v.str();
  std::string out;
  size_t next = 0;
  bool automatic = false, manual = false;
  for (size_t i = 0; i < f.size(); ++i) {
    const bool doubled = i + 1 < f.size() && f[i + 1] == f[i];
    if ((f[i] != '{' && f[i] != '}') || doubled) {
      out += f[i];
      i += (f[i] == '{' || f[i] == '}') && doubled;
      continue;
    }
    const size_t end = f.find('}', i);
    if (f[i] == '}' || end == std::string::npos) return bad_input("format: a single '{}'", f[i]);
    const std::string field = f.substr(i + 1, end - i - 1);
    i = end;
    if (field.find_first_of(".[!:{") != std::string::npos) {
      return unsupported("format: the field '{}' is more than a name or a number", field);
    }
    const Value* arg = nullptr;
    if (field.empty() || field.find_first_not_of("0123456789") == std::string::npos) {
      (field.empty() ? automatic : manual) = true;
      if (automatic && manual) return bad_input("format: automatic and numbered fields are mixed");
      const size_t place = field.empty() ? next++ : field.size() > 6 ? SIZE_MAX : std::stoul(field);
      if (place < args.positional.size()) arg = &args.positional[place];
    } else {
      for (const auto& [name, value] : args.named) {
        if (name == field) arg = &value;
      }
    }
    if (!arg) return bad_input("format: no argument for the field '{}'", field);
    PF_TRY(append_str(in.heap(), out, *arg));
    PF_TRY(in.heap().step());
  }
  return in.heap().str(std::move(out));
}

const FilterTable& number_filters() {
  static const auto* table = new FilterTable{
      {"int", to_int}, {"float", to_float}, {"abs", absolute}, {"round", round}, {"format", format},
  };
  return *table;
}

}  // namespace pagefold::jinja
