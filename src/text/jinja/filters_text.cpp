// Filters on text.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

Result<Value> string(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("string", 0));
  if (v.is(Kind::string)) return v;
  PF_ASSIGN(std::string s, to_str(in.heap(), v));
  return in.heap().str(std::move(s));
}

Result<std::string> text_arg(Interp& in, const Args& args, size_t place, std::string_view name) {
  const Value* v = args.get(place, name);
  if (!v) return bad_input("the argument '{}' is missing", name);
  return to_str(in.heap(), *v);
}

Result<Value> trim(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("trim", 1, {"chars"}));
  PF_ASSIGN(const std::string s, to_str(in.heap(), v));
  const Value* chars = given(args, 0, "chars");
  if (!chars) return in.heap().str(trim_right(trim_left(s)));
  if (!chars->is(Kind::string)) return bad_input("'chars' must be a string");
  return in.heap().str(strip_chars(s, chars->str(), true, true));
}

template <std::string (*f)(const std::string&)>
Result<Value> mapped(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("the filter", 0));
  PF_ASSIGN(const std::string s, to_str(in.heap(), v));
  return in.heap().str(f(s));
}

// Upper case at the start and after - ( { [ < and white space; lower case elsewhere.
std::string title_text(const std::string& s) {
  std::string out;
  bool start = true;
  for_each_code_point(s, [&](uint32_t c) {
    const bool boundary = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    append_utf8(out, start ? to_upper(c) : to_lower(c));
    start = boundary;
  });
  return out;
}

std::string escape_text(const std::string& s) {
  std::string out;
  for (const char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Result<Value> replace(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("replace", 3, {"old", "new", "count"}));
  PF_ASSIGN(const std::string s, to_str(in.heap(), v));
  PF_ASSIGN(const std::string from, text_arg(in, args, 0, "old"));
  PF_ASSIGN(const std::string to, text_arg(in, args, 1, "new"));
  int64_t count = -1;
  if (given(args, 2, "count")) {
    PF_ASSIGN(count, int_arg(args, 2, "count", -1));
  }
  return replace_text(in.heap(), s, from, to, count);
}

Result<Value> default_value(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("default", 2, {"default_value", "boolean"}));
  PF_ASSIGN(const bool boolean, bool_arg(args, 1, "boolean", false));
  if (!v.is_undefined() && (!boolean || truthy(v))) return v;
  if (const Value* otherwise = args.get(0, "default_value")) return *otherwise;
  return in.heap().str("");
}

std::vector<std::string_view> lines_of(std::string_view s) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < s.size();) {
    const uint32_t c = decode_utf8(s, i);
    const size_t end = i;
    i += utf8_width(s[i]);
    if (!((c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
          c == 0x2029)) {
      continue;
    }
    if (c == '\r' && i < s.size() && s[i] == '\n') ++i;
    lines.push_back(s.substr(start, end - start));
    start = i;
  }
  if (start < s.size()) lines.push_back(s.substr(start));
  return lines;
}

Result<Value> indent(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("indent", 3, {"width", "first", "blank"}));
  if (!v.is(Kind::string)) {
    if (v.is_undefined()) return undefined_error(v);
    return bad_input("indent needs a string, got {}", type_name(v));
  }
  std::string pad(4, ' ');
  if (const Value* width = args.get(0, "width")) {
    if (width->is(Kind::string)) {
      pad = width->str();
    } else {
      PF_ASSIGN(const int64_t n, int_arg(args, 0, "width", 4));
      if (n > 10'000) return exhausted("indent: a width of {} is too large", n);
      pad.assign(std::max<int64_t>(n, 0), ' ');
    }
  }
  PF_ASSIGN(const bool first, bool_arg(args, 1, "first", false));
  PF_ASSIGN(const bool blank, bool_arg(args, 2, "blank", false));
  PF_TRY(in.heap().room(v.str().size() * (sizeof(std::string_view) + 1)));
  const std::string text = v.str() + "\n";
  std::string out = first ? pad : "";
  bool next = false;
  for (const auto line : lines_of(text)) {
    PF_TRY(in.heap().room(out.size() + pad.size() + line.size()));
    PF_TRY(in.heap().work(64 + pad.size()));
    if (next) out += '\n';
    if (next && (blank || !line.empty())) out += pad;
    out += line;
    next = true;
  }
  return in.heap().str(std::move(out));
}

Result<Value> truncate(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("truncate", 4, {"length", "killwords", "end", "leeway"}));
  PF_ASSIGN(const int64_t length, int_arg(args, 0, "length", 255));
  PF_ASSIGN(const bool kill, bool_arg(args, 1, "killwords", false));
  std::string end = "...";
  if (args.get(2, "end")) {
    PF_ASSIGN(end, text_arg(in, args, 2, "end"));
  }
  PF_ASSIGN(const int64_t leeway, given(args, 3, "leeway") ? int_arg(args, 3, "leeway", 5) : 5);
  if (!v.is(Kind::string)) return bad_input("truncate needs a string, got {}", type_name(v));
  const std::string& s = v.str();
  const auto tail = static_cast<int64_t>(count_code_points(end));
  if (length < tail || leeway < 0) return bad_input("truncate: the length or leeway is too small");
  if (static_cast<int64_t>(count_code_points(s)) - leeway <= length) return v;
  std::string cut = s.substr(0, offset_of(s, length - tail));
  if (!kill) cut = cut.substr(0, cut.rfind(' '));
  return in.heap().str(cut + end);
}

Result<Value> wordcount(Interp& in, const Value& v, const Args&) {
  PF_ASSIGN(const std::string s, to_str(in.heap(), v));
  int64_t words = 0;
  bool inside = false;
  for_each_code_point(s, [&](uint32_t c) {
    const bool word = is_alpha(c) || is_digit(c) || c == '_';
    words += word && !inside;
    inside = word;
  });
  return Value::integer(words);
}

Result<Value> center(Interp& in, const Value& v, const Args& args) {
  PF_ASSIGN(const int64_t width, int_arg(args, 0, "width", 80));
  PF_ASSIGN(const Value s, string(in, v, {}));
  Args pass;
  pass.positional.push_back(Value::integer(width));
  return find_string_method("center")(in, s, pass);
}

Result<Value> safe(Interp& in, const Value& v, const Args&) { return string(in, v, {}); }

Result<Value> tojson(Interp& in, const Value& v, const Args& args) {
  PF_TRY(args.only("tojson", 4, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  PF_ASSIGN(style.ascii, bool_arg(args, 0, "ensure_ascii", false));
  PF_ASSIGN(style.sort_keys, bool_arg(args, 3, "sort_keys", false));
  if (const Value* indent_by = given(args, 1, "indent")) {
    style.indent = 0;
    if (indent_by->is(Kind::string)) {
      style.indent_text = indent_by->str();
    } else {
      PF_ASSIGN(const int64_t n, int_arg(args, 1, "indent", 0));
      if (n > 100) return exhausted("tojson: an indent of {} is too large", n);
      style.indent_text.assign(std::max<int64_t>(n, 0), ' ');
    }
    style.item_separator = ",";
  }
  if (const Value* separators = given(args, 2, "separators")) {
    PF_ASSIGN(const std::vector<Value> two, in.iterate(*separators));
    if (two.size() != 2 || !two[0].is(Kind::string) || !two[1].is(Kind::string)) {
      return bad_input("tojson: separators must be two strings");
    }
    style.item_separator = two[0].str();
    style.key_separator = two[1].str();
  }
  std::string out;
  PF_TRY(append_json(in.heap(), out, v, style));
  return in.heap().str(std::move(out));
}

}  // namespace

const FilterTable& text_filters() {
  static const auto* table = new FilterTable{
      {"string", string},
      {"trim", trim},
      {"upper", mapped<upper_text>},
      {"lower", mapped<lower_text>},
      {"capitalize", mapped<capitalize_text>},
      {"title", mapped<title_text>},
      {"escape", mapped<escape_text>},
      {"e", mapped<escape_text>},
      {"forceescape", mapped<escape_text>},
      {"replace", replace},
      {"default", default_value},
      {"d", default_value},
      {"indent", indent},
      {"truncate", truncate},
      {"wordcount", wordcount},
      {"center", center},
      {"safe", safe},
      {"tojson", tojson},
  };
  return *table;
}

}  // namespace pagefold::jinja
