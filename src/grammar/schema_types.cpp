#include "grammar/schema_types.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <vector>

#include "grammar/number_range.h"
#include "grammar/regex.h"
#include "grammar/schema_formats.h"
#include "grammar/schema_merge.h"

namespace pagefold::grammar {
namespace {

constexpr size_t kMaxMembers = 400;
constexpr size_t kMaxNameBytes = 512;

class TypeBuilder {
 public:
  explicit TypeBuilder(const SchemaContext& context)
      : g_(context.grammar), text_(context.text), inner_(context.schema) {}

  Result<ExprId> of_type(const std::string& type, const Json& s, const std::string& path,
                         int depth) {
    if (type == "object") return object(s, path, depth);
    if (type == "array") return array(s, path, depth);
    if (type == "string") return string(s, path);
    if (type == "number" || type == "integer") return number(s, path, type == "integer");
    if (type == "boolean") return text_.boolean();
    if (type == "null") return g_.literal("null");
    return bad_input("{}/type: there is no such type", path);
  }

 private:
  // A count such as minItems.
  Result<int> count(const Json& s, const char* word, const std::string& path, int absent) const {
    const auto it = s.find(word);
    if (it == s.end()) return absent;
    const bool whole =
        it->is_number_integer() ||
        (it->is_number_float() && it->get<double>() == std::floor(it->get<double>()));
    const double value = whole ? it->get<double>() : -1;
    if (value < 0) return bad_input("{}/{}: expected a whole number from 0", path, word);
    if (value > Grammar::kMaxRepeat) {
      return bad_input("{}/{}: at most {} is supported", path, word, Grammar::kMaxRepeat);
    }
    return static_cast<int>(value);
  }
  struct Counts {
    int min = 0, max = kUnbounded;
    bool impossible() const { return max != kUnbounded && max < min; }
  };
  Result<Counts> counts(const Json& s, const char* low, const char* high,
                        const std::string& path) const {
    Counts c;
    PF_ASSIGN(c.min, count(s, low, path, 0));
    PF_ASSIGN(c.max, count(s, high, path, kUnbounded));
    return c;
  }

  Result<ExprId> string(const Json& s, const std::string& path) {
    PF_ASSIGN(const Counts length, counts(s, "minLength", "maxLength", path));
    if (length.impossible()) return g_.never();
    std::optional<std::string> expression;
    bool search = true;
    if (s.contains("pattern")) {
      if (!s["pattern"].is_string()) return bad_input("{}/pattern: expected a string", path);
      expression = s["pattern"].get<std::string>();
    }
    if (s.contains("format")) {
      if (!s["format"].is_string()) return bad_input("{}/format: expected a string", path);
      const std::string& format = s["format"].get_ref<const std::string&>();
      const auto known = format_regex(format);
      // Hints for readers, not limits.
      const bool hint = format == "password" || format == "binary" || is_number_format(format);
      if (!known && !hint) {
        return bad_input("{}/format: the format \"{}\" is not supported", path, shown_name(format));
      }
      if (known && expression) {
        return bad_input("{}: \"pattern\" with \"format\" is not supported", path);
      }
      if (known) {
        expression = known;
        search = false;
      }
    }
    if (!expression) {
      if (length.min == 0 && length.max == kUnbounded) return text_.any_string();
      return text_.string(g_.repeat(text_.any_character(), length.min, length.max));
    }
    if (length.min > 0 || length.max != kUnbounded) {
      return bad_input(
          "{}: \"minLength\" or \"maxLength\" beside \"pattern\" or \"format\" is not "
          "supported; count in the pattern",
          path);
    }
    const auto content =
        regex_expr(g_, *expression,
                   {.character = [this](const CharSet& set) { return text_.character(set); },
                    .search = search});
    if (!content.ok()) return with_context(content.status(), path + "/pattern");
    return text_.string(*content);
  }
  static bool is_number_format(std::string_view f) {
    return f == "int32" || f == "int64" || f == "float" || f == "double";
  }

  Result<ExprId> number(const Json& s, const std::string& path, bool integer) {
    NumberBounds b;
    for (const char* word : kNumberWords) {
      const auto it = s.find(word);
      if (it == s.end()) continue;
      const bool low = std::string_view(word).ends_with("inimum");
      const bool open = std::string_view(word).starts_with("exclusive");
      if (open && it->is_boolean()) {  // draft 4: a switch beside the bound
        (low ? b.low_open : b.high_open) = it->get<bool>();
        continue;
      }
      if (!it->is_number()) return bad_input("{}/{}: expected a number", path, word);
      const Json*& bound = low ? b.low : b.high;
      const bool tighter = bound == nullptr || (low ? it->get<double>() >= bound->get<double>()
                                                    : it->get<double>() <= bound->get<double>());
      if (!tighter) continue;
      bound = &*it;
      if (open) (low ? b.low_open : b.high_open) = true;
    }
    static const Json kInt32Low = -2147483648LL, kInt32High = 2147483647LL;
    if (s.contains("format") && s["format"] == Json("int32")) {
      if (b.low == nullptr) b.low = &kInt32Low;
      if (b.high == nullptr) b.high = &kInt32High;
    }
    if (b.low == nullptr && b.high == nullptr) return integer ? text_.integer() : text_.number();
    return number_range(g_, b, integer);
  }

  Result<ExprId> array(const Json& s, const std::string& path, int depth) {
    PF_ASSIGN(Counts n, counts(s, "minItems", "maxItems", path));
    const Json* items = s.contains("items") ? &s["items"] : nullptr;
    const Json* prefix = s.contains("prefixItems") ? &s["prefixItems"] : nullptr;
    if (items != nullptr && items->is_array()) {  // draft 7
      prefix = items;
      items = s.contains("additionalItems") ? &s["additionalItems"] : nullptr;
    }
    std::vector<ExprId> first;
    if (prefix != nullptr) {
      if (!prefix->is_array()) return bad_input("{}/prefixItems: expected a list", path);
      for (size_t i = 0; i < prefix->size(); ++i) {
        PF_ASSIGN(const ExprId one,
                  inner_((*prefix)[i], fmt::format("{}/prefixItems/{}", path, i), depth + 1));
        first.push_back(g_.call_of(one));
      }
    }
    ExprId other = g_.never();
    const bool more = n.max == kUnbounded || n.max > static_cast<int>(first.size());
    if (more && items != nullptr) {
      PF_ASSIGN(other, inner_(*items, path + "/items", depth + 1));
      other = g_.call_of(other);
    } else if (more && first.empty()) {
      other = text_.any_value();
    }
    if (other == g_.never()) {
      const int most = static_cast<int>(first.size());
      n.max = n.max == kUnbounded ? most : std::min(n.max, most);
    }
    if (n.impossible()) return g_.never();
    if (n.max == 0) return text_.array_of(g_.empty());
    if (first.empty()) return text_.array_of(text_.list(other, n.min, n.max));
    return text_.array_of(tuple(first, other, n));
  }

  // rest: what may follow when i items were read, made from the end.
  ExprId tuple(const std::vector<ExprId>& first, ExprId other, Counts n) {
    const int k = static_cast<int>(first.size());
    ExprId rest = g_.repeat(g_.seq({text_.comma(), other}), std::max(0, n.min - k),
                            n.max == kUnbounded ? kUnbounded : std::max(0, n.max - k));
    for (int i = std::min(k, n.max == kUnbounded ? k : n.max) - 1; i >= 0; --i) {
      const ExprId item = first[static_cast<size_t>(i)];
      rest = g_.seq({i > 0 ? text_.comma() : g_.empty(), item, g_.call_of(rest)});
      if (n.min <= i) rest = g_.optional(rest);
    }
    return rest;
  }

  struct Member {
    ExprId pair;
    bool required;
  };

  Result<std::vector<Member>> members(const Json& s, const std::string& path, int depth,
                                      std::vector<std::string>& names) {
    std::vector<Member> out;
    const Json none = Json::object();
    const Json& properties = s.contains("properties") ? s["properties"] : none;
    if (!properties.is_object()) return bad_input("{}/properties: expected an object", path);
    Json required = s.contains("required") ? s["required"] : Json::array();
    if (!required.is_array()) return bad_input("{}/required: expected a list", path);
    if (properties.size() > kMaxMembers || required.size() > kMaxMembers) {
      return bad_input("{}/properties: at most {} are supported", path, kMaxMembers);
    }
    for (const auto& [name, value] : properties.items()) {
      if (name.size() > kMaxNameBytes) {
        return bad_input("{}/properties: names have at most {} bytes", path, kMaxNameBytes);
      }
      names.push_back(name);
      const auto wanted = std::find(required.begin(), required.end(), Json(name));
      const bool needed = wanted != required.end();
      if (needed) required.erase(wanted);
      PF_ASSIGN(const ExprId inside,
                inner_(value, fmt::format("{}/properties/{}", path, shown_name(name)), depth + 1));
      out.push_back({pair(name, inside), needed});
    }
    // Required without being listed: any value, or what additional ones must be.
    for (const Json& name : required) {
      if (!name.is_string()) return bad_input("{}/required: expected names", path);
      if (name.get_ref<const std::string&>().size() > kMaxNameBytes) {
        return bad_input("{}/required: names have at most {} bytes", path, kMaxNameBytes);
      }
      if (in(names, name.get_ref<const std::string&>())) continue;
      names.push_back(name.get<std::string>());
      const Json value =
          s.contains("additionalProperties") ? s["additionalProperties"] : Json(true);
      PF_ASSIGN(const ExprId inside, inner_(value, path + "/additionalProperties", depth + 1));
      out.push_back({pair(names.back(), inside), true});
    }
    return out;
  }
  ExprId pair(const std::string& name, ExprId value) {
    const ExprId whole = g_.seq({g_.literal(text_.quoted(name)), text_.colon(), value});
    return whole == g_.never() ? whole : g_.call_of(whole);
  }

  // The name of a member that is not listed.
  Result<ExprId> extra_key(const Json& s, const std::vector<std::string>& names,
                           const std::string& path, int depth) {
    const auto rule = s.find("propertyNames");
    if (rule == s.end() || rule->is_boolean()) return text_.key_except(names);
    if (!names.empty()) {
      return bad_input("{}/propertyNames: beside properties or required it is not supported", path);
    }
    PF_ASSIGN(const Json text, merge_schemas({{"type", "string"}}, *rule, path + "/propertyNames"));
    return inner_(text, path + "/propertyNames", depth + 1);
  }

  Result<ExprId> object(const Json& s, const std::string& path, int depth) {
    if (s.contains("unevaluatedProperties") && s["unevaluatedProperties"] != Json(false)) {
      return bad_input("{}: \"unevaluatedProperties\" other than false is not supported", path);
    }
    PF_ASSIGN(const Counts n, counts(s, "minProperties", "maxProperties", path));
    std::vector<std::string> names;
    PF_ASSIGN(const std::vector<Member> listed, members(s, path, depth, names));
    const bool has_additional = s.contains("additionalProperties");
    ExprId extra = g_.never();
    if (has_additional || (names.empty() && !s.contains("properties"))) {
      const Json value = has_additional ? s["additionalProperties"] : Json(true);
      PF_ASSIGN(const ExprId inside, inner_(value, path + "/additionalProperties", depth + 1));
      if (inside != g_.never()) {
        PF_ASSIGN(const ExprId key, extra_key(s, names, path, depth));
        extra = g_.call_of(g_.seq({key, text_.colon(), inside}));
      }
    }
    return members_expr(listed, extra, n, path);
  }

  // The counts hold for all members; how many optional ones come is not tracked, so they must not
  // matter.
  Result<ExprId> members_expr(const std::vector<Member>& listed, ExprId extra, Counts n,
                              const std::string& path) {
    const auto all = static_cast<int>(listed.size());
    const auto needed = static_cast<int>(
        std::count_if(listed.begin(), listed.end(), [](const Member& m) { return m.required; }));
    const bool fixed = all == needed;
    const bool open = extra != g_.never();
    Counts more;  // of extra ones
    more.min = std::max(0, n.min - all);
    if (n.min > needed && !fixed) {
      return bad_input("{}/minProperties: with optional properties it is not supported", path);
    }
    if (n.max != kUnbounded && n.max < all && !fixed) {
      return bad_input("{}/maxProperties: with optional properties it is not supported", path);
    }
    if (n.max != kUnbounded) more.max = n.max - all;
    if (n.max != kUnbounded && more.max < 0) return g_.never();
    if (!open && more.min > 0) return g_.never();
    if (more.impossible()) return g_.never();

    // rest: after at least one member; first: none was written yet. From the last one back.
    ExprId rest = open ? g_.repeat(g_.seq({text_.comma(), extra}), more.min, more.max) : g_.empty();
    ExprId first = open ? text_.list(extra, more.min, more.max) : g_.empty();
    for (auto m = listed.rbegin(); m != listed.rend(); ++m) {
      const ExprId tail = g_.call_of(rest);
      const ExprId here = g_.seq({m->pair, tail});
      rest = g_.seq({text_.comma(), m->pair});
      rest = g_.seq({m->required ? rest : g_.optional(rest), tail});
      first = m->required ? here : g_.alt({here, first == g_.empty() ? first : g_.call_of(first)});
    }
    return text_.object_of(first);
  }

  Grammar& g_;
  JsonText& text_;
  const std::function<Result<ExprId>(const Json&, const std::string&, int)>& inner_;
};

}  // namespace

Result<ExprId> typed_schema_expr(const std::string& type, const Json& schema,
                                 const std::string& path, int depth, const SchemaContext& context) {
  return TypeBuilder(context).of_type(type, schema, path, depth);
}

}  // namespace pagefold::grammar
