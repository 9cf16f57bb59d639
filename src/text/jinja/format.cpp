// str(), repr() and json.dumps() of values.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/interp.h"
#include "text/jinja/ops.h"
#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

// Checked as text grows: shared values print far larger than they are.
Status grown(Heap& heap, const std::string& out, size_t before) {
  PF_TRY(heap.step());
  PF_TRY(heap.work(out.size() - before));
  return heap.room(out.size());
}

bool printable(uint32_t c) {
  if (c < 0xA1) return c >= 0x20 && c < 0x7F;
  if (c == 0xAD || (is_space(c) && c != ' ')) return false;
  if ((c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E)) return false;
  if (c >= 0x2060 && c <= 0x206F) return false;
  if (c >= 0xE000 && c <= 0xF8FF) return false;
  if (c == 0xFEFF || (c >= 0xFFF0 && c <= 0xFFFB) || (c & 0xFFFE) == 0xFFFE) return false;
  return c < 0xE0000;
}

void append_string_repr(std::string& out, const std::string& s) {
  const bool dq = s.find('\'') != std::string::npos && s.find('"') == std::string::npos;
  const char quote = dq ? '"' : '\'';
  out += quote;
  for (size_t i = 0; i < s.size(); i += utf8_width(s[i])) {
    const uint32_t c = decode_utf8(s, i);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (printable(c)) {
      out.append(s, i, utf8_width(s[i]));
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += fmt::format("\\U{:08x}", c);
    }
  }
  out += quote;
}

Status append_sequence(Heap& heap, std::string& out, const Value& v) {
  const bool tuple = v.is(Kind::tuple);
  const Flavor flavor = tuple ? Flavor::plain : v.list().flavor;
  const auto& items = v.items();
  if (flavor == Flavor::range) {
    const int64_t n = static_cast<int64_t>(items.size());
    const int64_t first = n > 0 ? items[0].i : 0;
    const int64_t step = n > 1 ? items[1].i - first : 1;
    const int64_t stop = n > 0 ? items[n - 1].i + (step > 0 ? 1 : -1) : 0;
    out += step == 1 ? fmt::format("range({}, {})", first, stop)
                     : fmt::format("range({}, {}, {})", first, stop, step);
    return ok_status();
  }
  const bool view = flavor == Flavor::keys || flavor == Flavor::values || flavor == Flavor::pairs;
  if (view) out += std::string(type_name(v)) + "(";
  out += tuple ? '(' : '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    PF_TRY(append_repr(heap, out, items[i]));
  }
  if (tuple && items.size() == 1) out += ',';
  out += tuple ? ')' : ']';
  if (view) out += ')';
  return ok_status();
}

Status append_object(Heap& heap, std::string& out, const Value& v) {
  const Special& s = v.special();
  if (s.type != Special::Type::space) {
    out += fmt::format("<{}>", type_name(v));
    return ok_status();
  }
  // Namespaces may hold each other, so what is inside one is not printed when it is one too.
  out += "<Namespace {";
  bool first = true;
  for (const auto& [name, value] : static_cast<const Space&>(s).attributes) {
    if (!std::exchange(first, false)) out += ", ";
    append_string_repr(out, name);
    out += ": ";
    if (value.is_sequence() || value.is(Kind::dict) || value.is(Kind::object)) {
      out += fmt::format("<{}>", type_name(value));
    } else {
      PF_TRY(append_repr(heap, out, value));
    }
  }
  out += "}>";
  return ok_status();
}

void append_json_text(std::string& out, const std::string& s, bool ascii) {
  out += Json(s).dump(-1, ' ', ascii, Json::error_handler_t::replace);
}

Status json_key(std::string& out, const Value& key, const JsonStyle& style) {
  switch (key.kind) {
    case Kind::string:
      append_json_text(out, key.str(), style.ascii);
      return ok_status();
    case Kind::none:
      out += "\"null\"";
      return ok_status();
    case Kind::boolean:
      out += key.i != 0 ? "\"true\"" : "\"false\"";
      return ok_status();
    case Kind::integer:
      out += fmt::format("\"{}\"", key.i);
      return ok_status();
    case Kind::real:
      out += "\"" + float_repr(key.d) + "\"";
      return ok_status();
    default:
      return bad_input("a key of type {} has no JSON form", type_name(key));
  }
}

Status json_walk(Heap& heap, std::string& out, const Value& v, const JsonStyle& style, int depth) {
  const size_t before = out.size();
  const auto new_line = [&](int d) {
    if (style.indent < 0) return;
    out += '\n';
    for (int i = 0; i < d; ++i) out += style.indent_text;
  };
  switch (v.kind) {
    case Kind::none:
      out += "null";
      break;
    case Kind::boolean:
      out += v.i != 0 ? "true" : "false";
      break;
    case Kind::integer:
      out += fmt::format("{}", v.i);
      break;
    case Kind::real:
      out += std::isnan(v.d)   ? "NaN"
             : std::isinf(v.d) ? (v.d > 0 ? "Infinity" : "-Infinity")
                               : float_repr(v.d);
      break;
    case Kind::string:
      PF_TRY(heap.room(out.size() + v.str().size()));
      append_json_text(out, v.str(), style.ascii);
      break;
    case Kind::list:
    case Kind::tuple: {
      if (v.is(Kind::list) && v.list().flavor != Flavor::plain) {
        return bad_input("a {} has no JSON form", type_name(v));
      }
      out += '[';
      bool first = true;
      for (const Value& item : v.items()) {
        if (!std::exchange(first, false)) out += style.item_separator;
        new_line(depth + 1);
        PF_TRY(json_walk(heap, out, item, style, depth + 1));
      }
      if (!v.items().empty()) new_line(depth);
      out += ']';
      break;
    }
    case Kind::dict: {
      auto entries = std::vector<const DictObj::Entry*>();
      for (const auto& entry : v.dict().entries) entries.push_back(&entry);
      if (style.sort_keys) {
        for (const auto* e : entries) {
          if (!e->first.is(Kind::string)) return bad_input("sort_keys needs string keys");
        }
        std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
          return a->first.str() < b->first.str();
        });
      }
      out += '{';
      bool first = true;
      for (const auto* entry : entries) {
        if (!std::exchange(first, false)) out += style.item_separator;
        new_line(depth + 1);
        PF_TRY(json_key(out, entry->first, style));
        out += style.key_separator;
        PF_TRY(json_walk(heap, out, entry->second, style, depth + 1));
      }
      if (!entries.empty()) new_line(depth);
      out += '}';
      break;
    }
    default:
      return bad_input("a value of type {} has no JSON form", type_name(v));
  }
  return grown(heap, out, before);
}

}  // namespace

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  // Shortest digits in exponent form, then laid out as Python does: fixed for 1e-4 <= |d| < 1e16.
  const auto [end, ec] =
      std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific);
  const std::string sci(buffer, ec == std::errc() ? end : buffer);
  const size_t e = sci.find('e');
  const int exponent = std::atoi(sci.c_str() + e + 1);
  if (d != 0 && (exponent < -4 || exponent >= 16)) return sci;
  const bool minus = sci[0] == '-';
  std::string digits;
  for (size_t i = minus; i < e; ++i) {
    if (sci[i] != '.') digits += sci[i];
  }
  std::string out = minus ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

Status append_repr(Heap& heap, std::string& out, const Value& v) {
  const size_t before = out.size();
  switch (v.kind) {
    case Kind::undefined:
      out += "Undefined";
      break;
    case Kind::none:
      out += "None";
      break;
    case Kind::boolean:
      out += v.i != 0 ? "True" : "False";
      break;
    case Kind::integer:
      out += fmt::format("{}", v.i);
      break;
    case Kind::real:
      out += float_repr(v.d);
      break;
    case Kind::string:
      PF_TRY(heap.room(out.size() + v.str().size()));
      append_string_repr(out, v.str());
      break;
    case Kind::list:
    case Kind::tuple:
      PF_TRY(append_sequence(heap, out, v));
      break;
    case Kind::dict: {
      out += '{';
      bool first = true;
      for (const auto& [key, value] : v.dict().entries) {
        if (!std::exchange(first, false)) out += ", ";
        PF_TRY(append_repr(heap, out, key));
        out += ": ";
        PF_TRY(append_repr(heap, out, value));
      }
      out += '}';
      break;
    }
    case Kind::object:
      PF_TRY(append_object(heap, out, v));
      break;
  }
  return grown(heap, out, before);
}

Status append_str(Heap& heap, std::string& out, const Value& v) {
  if (v.is_undefined()) return ok_status();
  if (!v.is(Kind::string)) return append_repr(heap, out, v);
  PF_TRY(heap.room(out.size() + v.str().size()));
  PF_TRY(heap.work(v.str().size()));
  out += v.str();
  return ok_status();
}

Result<std::string> to_str(Heap& heap, const Value& v) {
  std::string out;
  PF_TRY(append_str(heap, out, v));
  return out;
}

Status append_json(Heap& heap, std::string& out, const Value& v, const JsonStyle& style) {
  return json_walk(heap, out, v, style, 0);
}

}  // namespace pagefold::jinja
