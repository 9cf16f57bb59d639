// Methods of str, on code points.
#include <algorithm>

#include "text/jinja/interp.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

Result<const std::string*> text_arg(const Args& args, size_t place, std::string_view name) {
  const Value* v = args.get(place, name);
  if (!v) return bad_input("the argument '{}' is missing", name);
  if (v->is_undefined()) return undefined_error(*v);
  if (!v->is(Kind::string)) return bad_input("'{}' must be a string, got {}", name, type_name(*v));
  return &v->str();
}

Result<int64_t> int_arg(const Args& args, size_t place, std::string_view name, int64_t otherwise) {
  const Value* v = args.get(place, name);
  if (!v) return otherwise;
  if (!v->is_int()) return bad_input("'{}' must be an integer, got {}", name, type_name(*v));
  return v->i;
}

std::string map_chars(const std::string& s, uint32_t (*f)(uint32_t)) {
  std::string out;
  out.reserve(s.size());
  for_each_code_point(s, [&](uint32_t c) {
    if (c == 0xDF && f == to_upper) {
      out += "SS";  // the one lower-case letter here without a single upper-case one
    } else {
      append_utf8(out, f(c));
    }
  });
  return out;
}

Result<Value> upper_method(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("upper", 0));
  return in.heap().str(upper_text(v.str()));
}
Result<Value> lower_method(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("lower", 0));
  return in.heap().str(lower_text(v.str()));
}
Result<Value> capitalize(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("capitalize", 0));
  return in.heap().str(capitalize_text(v.str()));
}

Result<Value> title(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("title", 0));
  std::string out;
  bool inside = false;
  for_each_code_point(v.str(), [&](uint32_t c) {
    append_utf8(out, inside ? to_lower(c) : to_upper(c));
    inside = is_cased(c);
  });
  return in.heap().str(std::move(out));
}

// Shared by strip, lstrip and rstrip: which ends.
template <bool left, bool right>
Result<Value> strip(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("strip", 1));
  std::string_view s = v.str();
  PF_TRY(in.heap().work(s.size()));
  if (args.positional.empty() || args.positional[0].is(Kind::none)) {
    if (left) s = trim_left(s);
    if (right) s = trim_right(s);
    return in.heap().str(s);
  }
  PF_ASSIGN(const std::string* chars, text_arg(args, 0, "chars"));
  PF_TRY(in.heap().work(chars->size()));
  return in.heap().str(strip_chars(s, *chars, left, right));
}

Result<Value> split_space(Interp& in, std::string_view s, int64_t most, bool from_right) {
  std::vector<Value> parts;
  s = from_right ? trim_right(s) : trim_left(s);
  while (!s.empty()) {
    const auto n = static_cast<int64_t>(parts.size());
    if (most >= 0 && n >= most) {
      PF_ASSIGN(Value rest, in.heap().str(s));
      parts.push_back(std::move(rest));
      break;
    }
    size_t cut = 0;
    if (from_right) {
      cut = s.size();
      while (cut > 0) {
        size_t i = cut - 1;
        while (i > 0 && (static_cast<unsigned char>(s[i]) & 0xC0) == 0x80) --i;
        if (is_space(decode_utf8(s, i))) break;
        cut = i;
      }
    } else {
      while (cut < s.size() && !is_space(decode_utf8(s, cut))) cut += utf8_width(s[cut]);
    }
    PF_ASSIGN(Value part, in.heap().str(from_right ? s.substr(cut) : s.substr(0, cut)));
    parts.push_back(std::move(part));
    s = from_right ? trim_right(s.substr(0, cut)) : trim_left(s.substr(cut));
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return in.heap().list(std::move(parts));
}

template <bool from_right>
Result<Value> split(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("split", 2, {"sep", "maxsplit"}));
  PF_ASSIGN(const int64_t most, int_arg(args, 1, "maxsplit", -1));
  std::string_view s = v.str();
  PF_TRY(in.heap().work(s.size()));
  const Value* given = args.get(0, "sep");
  if (!given || given->is(Kind::none)) return split_space(in, s, most, from_right);
  PF_ASSIGN(const std::string* sep, text_arg(args, 0, "sep"));
  if (sep->empty()) return bad_input("split: the separator is empty");
  std::vector<Value> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = from_right ? s.rfind(*sep) : s.find(*sep);
    if (at == std::string_view::npos) break;
    const std::string_view part = from_right ? s.substr(at + sep->size()) : s.substr(0, at);
    PF_ASSIGN(Value p, in.heap().str(part));
    PF_TRY(in.heap().step());
    parts.push_back(std::move(p));
    s = from_right ? s.substr(0, at) : s.substr(at + sep->size());
  }
  PF_ASSIGN(Value rest, in.heap().str(s));
  parts.push_back(std::move(rest));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return in.heap().list(std::move(parts));
}

template <bool at_start>
Result<Value> has_affix(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("startswith and endswith", 3));
  if (args.positional.size() > 1) return unsupported("startswith and endswith take no positions");
  if (args.positional.empty()) return bad_input("startswith and endswith need a string");
  const Value& affix = args.positional[0];
  const auto matches = [&](const Value& a) -> Result<bool> {
    if (a.is_undefined()) return undefined_error(a);
    if (!a.is(Kind::string)) return bad_input("a string is needed, got {}", type_name(a));
    PF_TRY(in.heap().work(a.str().size()));
    return at_start ? v.str().starts_with(a.str()) : v.str().ends_with(a.str());
  };
  if (!affix.is(Kind::tuple)) {
    PF_ASSIGN(const bool b, matches(affix));
    return Value::boolean(b);
  }
  for (const Value& a : affix.items()) {
    PF_TRY(in.heap().step());
    PF_ASSIGN(const bool b, matches(a));
    if (b) return Value::boolean(true);
  }
  return Value::boolean(false);
}

Result<Value> replace_method(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("replace", 3));
  PF_ASSIGN(const std::string* from, text_arg(args, 0, "old"));
  PF_ASSIGN(const std::string* to, text_arg(args, 1, "new"));
  PF_ASSIGN(const int64_t count, int_arg(args, 2, "count", -1));
  return replace_text(in.heap(), v.str(), *from, *to, count);
}

// s.find(sub[, start[, end]]) and its kin all look at a slice.
Result<std::string_view> window(const Value& v, const Args& args, size_t* offset) {
  const Value none = Value::none();
  const Value* from = args.get(1, "start");
  const Value* to = args.get(2, "end");
  const std::string_view s = v.str();
  *offset = 0;
  if (!from && !to) return s;
  const size_t n = count_code_points(s);
  PF_ASSIGN(const SliceRange r, slice_range(n, from ? *from : none, to ? *to : none, none));
  *offset = static_cast<size_t>(r.first);
  const size_t start = offset_of(s, r.first);
  return s.substr(start, offset_of(s.substr(start), r.count));
}

template <bool from_right>
Result<Value> find(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("find", 3));
  PF_ASSIGN(const std::string* sub, text_arg(args, 0, "sub"));
  PF_TRY(in.heap().work(v.str().size()));
  size_t offset = 0;
  PF_ASSIGN(const std::string_view s, window(v, args, &offset));
  const size_t at = from_right ? s.rfind(*sub) : s.find(*sub);
  if (at == std::string_view::npos) return Value::integer(-1);
  return Value::integer(static_cast<int64_t>(offset + count_code_points(s.substr(0, at))));
}

Result<Value> index(Interp& in, const Value& v, const Args& args) {
  PF_ASSIGN(Value at, find<false>(in, v, args));
  if (at.i < 0) return bad_input("index: substring not found");
  return at;
}

Result<Value> count(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("count", 3));
  PF_ASSIGN(const std::string* sub, text_arg(args, 0, "sub"));
  PF_TRY(in.heap().work(v.str().size()));
  size_t offset = 0;
  PF_ASSIGN(const std::string_view s, window(v, args, &offset));
  if (sub->empty()) return Value::integer(static_cast<int64_t>(count_code_points(s)) + 1);
  int64_t n = 0;
  for (size_t at = 0; (at = s.find(*sub, at)) != std::string_view::npos; at += sub->size()) ++n;
  return Value::integer(n);
}

Result<Value> join_method(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("join", 1));
  if (args.positional.empty()) return bad_input("join needs a list");
  PF_ASSIGN(const std::vector<Value> items, in.iterate(args.positional[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(Kind::string)) {
      return bad_input("join: item {} is not a string but {}", i, type_name(items[i]));
    }
    PF_TRY(in.heap().room(out.size() + v.str().size() + items[i].str().size()));
    if (i > 0) out += v.str();
    out += items[i].str();
    PF_TRY(in.heap().step());
  }
  return in.heap().str(std::move(out));
}

template <bool (*pred)(uint32_t)>
Result<Value> all_chars(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("the method", 0));
  PF_TRY(in.heap().work(v.str().size()));
  bool all = !v.str().empty();
  for_each_code_point(v.str(), [&](uint32_t c) { all &= pred(c); });
  return Value::boolean(all);
}
bool is_alnum(uint32_t c) { return is_alpha(c) || is_digit(c); }

template <bool to_up>
Result<Value> is_case(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("the method", 0));
  PF_ASSIGN(const bool b, in.apply_test(to_up ? "upper" : "lower", v, args));
  return Value::boolean(b);
}

Result<Value> splitlines(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("splitlines", 1, {"keepends"}));
  const Value* keep = args.get(0, "keepends");
  const bool keep_ends = keep && truthy(*keep);
  const std::string_view s = v.str();
  std::vector<Value> lines;
  size_t start = 0;
  for (size_t i = 0; i < s.size();) {
    const uint32_t c = decode_utf8(s, i);
    const bool breaks =
        (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    const size_t line_end = i;
    i += utf8_width(s[i]);
    if (!breaks) continue;
    if (c == '\r' && i < s.size() && s[i] == '\n') ++i;
    PF_ASSIGN(Value line, in.heap().str(s.substr(start, (keep_ends ? i : line_end) - start)));
    lines.push_back(std::move(line));
    start = i;
  }
  if (start < s.size()) {
    PF_ASSIGN(Value line, in.heap().str(s.substr(start)));
    lines.push_back(std::move(line));
  }
  return in.heap().list(std::move(lines));
}

template <bool prefix>
Result<Value> remove_affix(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("removeprefix and removesuffix", 1));
  PF_ASSIGN(const std::string* a, text_arg(args, 0, prefix ? "prefix" : "suffix"));
  const std::string& s = v.str();
  if (prefix) return in.heap().str(s.starts_with(*a) ? s.substr(a->size()) : s);
  return in.heap().str(s.ends_with(*a) ? s.substr(0, s.size() - a->size()) : s);
}

// zfill, ljust, rjust, center.
enum class Pad { zero, left, right, center };
template <Pad how>
Result<Value> pad(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("padding", how == Pad::zero ? 1 : 2));
  PF_ASSIGN(const int64_t width, int_arg(args, 0, "width", -1));
  if (args.positional.empty()) return bad_input("a width is needed");
  std::string fill = how == Pad::zero ? "0" : " ";
  if (args.positional.size() > 1) {
    PF_ASSIGN(const std::string* f, text_arg(args, 1, "fillchar"));
    if (count_code_points(*f) != 1) return bad_input("the fill must be one character");
    fill = *f;
  }
  const std::string& s = v.str();
  const auto have = static_cast<int64_t>(count_code_points(s));
  const int64_t missing = std::max<int64_t>(width - have, 0);
  if (missing > (1 << 26)) return exhausted("a padded string is too long");
  PF_TRY(in.heap().room(s.size() + missing * fill.size()));
  const auto fills = [&](int64_t n) {
    std::string out;
    for (int64_t i = 0; i < n; ++i) out += fill;
    return out;
  };
  if (how == Pad::zero) {
    const size_t sign = !s.empty() && (s[0] == '-' || s[0] == '+');
    return in.heap().str(s.substr(0, sign) + fills(missing) + s.substr(sign));
  }
  if (how == Pad::left) return in.heap().str(s + fills(missing));
  if (how == Pad::right) return in.heap().str(fills(missing) + s);
  const int64_t before = missing / 2 + (missing & width & 1);  // as CPython rounds
  return in.heap().str(fills(before) + s + fills(missing - before));
}

}  // namespace

std::string upper_text(const std::string& s) { return map_chars(s, to_upper); }
std::string lower_text(const std::string& s) { return map_chars(s, to_lower); }
std::string capitalize_text(const std::string& s) {
  if (s.empty()) return s;
  const size_t first = utf8_width(s[0]);
  return upper_text(s.substr(0, first)) + lower_text(s.substr(first));
}

std::string_view strip_chars(std::string_view s, std::string_view chars, bool left, bool right) {
  const auto listed = [&](std::string_view c) { return chars.find(c) != std::string_view::npos; };
  while (left && !s.empty() && listed(s.substr(0, utf8_width(s[0])))) {
    s.remove_prefix(utf8_width(s[0]));
  }
  while (right && !s.empty()) {
    size_t i = s.size() - 1;
    while (i > 0 && (static_cast<unsigned char>(s[i]) & 0xC0) == 0x80) --i;
    if (!listed(s.substr(i))) break;
    s = s.substr(0, i);
  }
  return s;
}

Result<Value> replace_text(Heap& heap, const std::string& s, const std::string& from,
                           const std::string& to, int64_t count) {
  PF_TRY(heap.work(s.size()));
  std::string out;
  const auto more = [&] { return count != 0; };
  if (from.empty()) {  // between all characters, as Python has it
    size_t i = 0;
    for (; more(); --count) {
      PF_TRY(heap.room(out.size() + to.size()));
      PF_TRY(heap.step());
      out += to;
      if (i >= s.size()) break;
      out.append(s, i, utf8_width(s[i]));
      i += utf8_width(s[i]);
    }
    return heap.str(out.append(s, std::min(i, s.size())));
  }
  size_t at = 0;
  for (; more(); --count) {
    const size_t hit = s.find(from, at);
    if (hit == std::string::npos) break;
    PF_TRY(heap.room(out.size() + (hit - at) + to.size()));
    PF_TRY(heap.step());
    out.append(s, at, hit - at);
    out += to;
    at = hit + from.size();
  }
  return heap.str(out.append(s, at));
}

Method find_string_method(std::string_view name) {
  static const auto* table = new std::unordered_map<std::string_view, Method>{
      {"upper", upper_method},
      {"lower", lower_method},
      {"capitalize", capitalize},
      {"title", title},
      {"strip", strip<true, true>},
      {"lstrip", strip<true, false>},
      {"rstrip", strip<false, true>},
      {"split", split<false>},
      {"rsplit", split<true>},
      {"splitlines", splitlines},
      {"startswith", has_affix<true>},
      {"endswith", has_affix<false>},
      {"replace", replace_method},
      {"find", find<false>},
      {"rfind", find<true>},
      {"index", index},
      {"count", count},
      {"join", join_method},
      {"isdigit", all_chars<is_digit>},
      {"isnumeric", all_chars<is_digit>},
      {"isdecimal", all_chars<is_digit>},
      {"isalpha", all_chars<is_alpha>},
      {"isalnum", all_chars<is_alnum>},
      {"isspace", all_chars<is_space>},
      {"isupper", is_case<true>},
      {"islower", is_case<false>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"zfill", pad<Pad::zero>},
      {"ljust", pad<Pad::left>},
      {"rjust", pad<Pad::right>},
      {"center", pad<Pad::center>},
      {"format", format_method},
  };
  const auto it = table->find(name);
  return it == table->end() ? nullptr : it->second;
}

}  // namespace pagefold::jinja
