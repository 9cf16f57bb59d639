#include "grammar/json_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace pagefold::grammar {
namespace {

constexpr int kKeyCharacters = 64;  // of a key that is not listed

const CharSet& plain_characters() {
  static const CharSet set =
      CharSet({{0x20, 0x10FFFF}}).without(CharSet({{'"', '"'}, {'\\', '\\'}}));
  return set;
}

ByteSet one_of(std::string_view bytes) {
  ByteSet set;
  for (const char c : bytes) set.set(static_cast<unsigned char>(c));
  return set;
}

std::u32string characters_of(std::string_view utf8) {
  std::u32string out;
  for (size_t i = 0; i < utf8.size();) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    const size_t n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    char32_t c = n == 1 ? lead : lead & (0x7Fu >> n);
    for (size_t k = 1; k < n && i + k < utf8.size(); ++k) {
      c = (c << 6) | (static_cast<unsigned char>(utf8[i + k]) & 0x3F);
    }
    out += c;
    i += n;
  }
  return out;
}

}  // namespace

ExprId JsonText::gap() {
  if (!gap_) {
    const ExprId line = g_.seq({g_.literal("\n"), g_.repeat(g_.bytes(one_of(" \t")), 0, 20)});
    gap_ = g_.rule_of(g_.alt({g_.empty(), g_.literal(" "), line}));
  }
  return g_.call(*gap_);
}

ExprId JsonText::character(const CharSet& set) {
  std::vector<ExprId> forms = {g_.chars(set.intersected(plain_characters()))};
  if (set.contains('"')) forms.push_back(g_.literal("\\\""));
  if (set.contains('\\')) forms.push_back(g_.literal("\\\\"));
  for (uint32_t c = 0; c < 0x20; ++c) {
    if (!set.contains(c)) continue;
    constexpr std::string_view kShort = "\b\f\n\r\t", kLetters = "bfnrt";
    const size_t at = kShort.find(static_cast<char>(c));
    forms.push_back(g_.literal(at != std::string_view::npos ? fmt::format("\\{}", kLetters[at])
                                                            : fmt::format("\\u{:04x}", c)));
  }
  return g_.alt(std::move(forms));
}

ExprId JsonText::any_character() {
  if (any_character_) return g_.call(*any_character_);
  const ByteSet hex_digit = one_of("0123456789abcdefABCDEF");
  const ExprId hex = g_.bytes(hex_digit);
  const ExprId below_surrogates = g_.seq({g_.bytes(hex_digit & ~one_of("dD")), hex, hex, hex});
  const ExprId d = g_.bytes(one_of("dD"));
  const ExprId d_plain = g_.seq({d, g_.bytes(one_of("01234567")), hex, hex});
  const ExprId pair = g_.seq({d, g_.bytes(one_of("89abAB")), hex, hex, g_.literal("\\u"), d,
                              g_.bytes(one_of("cdefCDEF")), hex, hex});
  const ExprId escape =
      g_.alt({g_.bytes(one_of("\"\\/bfnrt")),
              g_.seq({g_.literal("u"), g_.alt({below_surrogates, d_plain, pair})})});
  any_character_ =
      g_.rule_of(g_.alt({g_.chars(plain_characters()), g_.seq({g_.literal("\\"), escape})}));
  return g_.call(*any_character_);
}

ExprId JsonText::any_string() {
  if (!any_string_) any_string_ = g_.rule_of(string(g_.star(any_character())));
  return g_.call(*any_string_);
}

ExprId JsonText::integer() {
  const ExprId first = g_.bytes(byte_range('1', '9')), digit = g_.bytes(byte_range('0', '9'));
  const ExprId many = g_.seq({first, g_.repeat(digit, 0, 14)});
  return g_.alt({g_.literal("0"), g_.seq({g_.optional(g_.literal("-")), many})});
}

ExprId JsonText::number() {
  if (!number_) {
    const ExprId digit = g_.bytes(byte_range('0', '9')), first = g_.bytes(byte_range('1', '9'));
    const ExprId whole = g_.alt({g_.literal("0"), g_.seq({first, g_.repeat(digit, 0, 14)})});
    const ExprId fraction = g_.seq({g_.literal("."), g_.repeat(digit, 1, 15)});
    const ExprId exponent = g_.seq(
        {g_.bytes(one_of("eE")), g_.optional(g_.bytes(one_of("+-"))), g_.repeat(digit, 1, 2)});
    number_ = g_.rule_of(g_.seq(
        {g_.optional(g_.literal("-")), whole, g_.optional(fraction), g_.optional(exponent)}));
  }
  return g_.call(*number_);
}

void JsonText::define_values() {
  if (value_) return;
  value_ = g_.declare();
  object_ = g_.declare();
  array_ = g_.declare();
  const ExprId value = g_.call(*value_);
  const ExprId pair = g_.seq({any_string(), colon(), value});
  g_.define(*object_, object_of(list(pair, 0, kUnbounded)));
  g_.define(*array_, array_of(list(value, 0, kUnbounded)));
  g_.define(*value_, g_.alt({g_.call(*object_), g_.call(*array_), any_string(), number(), boolean(),
                             g_.literal("null")}));
}

ExprId JsonText::any_value() {
  define_values();
  return g_.call(*value_);
}
ExprId JsonText::any_object() {
  define_values();
  return g_.call(*object_);
}
ExprId JsonText::any_array() {
  define_values();
  return g_.call(*array_);
}

ExprId JsonText::object_of(ExprId pairs) {
  return g_.seq({g_.literal("{"), gap(), pairs, gap(), g_.literal("}")});
}
ExprId JsonText::array_of(ExprId items) {
  return g_.seq({g_.literal("["), gap(), items, gap(), g_.literal("]")});
}

ExprId JsonText::list(ExprId item, int min, int max) {
  if (max == 0) return min == 0 ? g_.empty() : g_.never();
  const ExprId more = g_.repeat(g_.seq({comma(), item}), std::max(min - 1, 0),
                                max == kUnbounded ? kUnbounded : max - 1);
  const ExprId some = g_.seq({item, more});
  return min == 0 ? g_.optional(some) : some;
}

std::string JsonText::quoted(std::string_view text) const {
  std::string out;
  append_json_string(out, text);
  return out;
}

ExprId JsonText::constant(const Json& value) {
  if (value.is_object()) {
    std::vector<ExprId> parts;
    for (const auto& [key, item] : value.items()) {
      if (!parts.empty()) parts.push_back(comma());
      parts.insert(parts.end(), {g_.literal(quoted(key)), colon(), constant(item)});
    }
    return object_of(g_.seq(std::move(parts)));
  }
  if (value.is_array()) {
    std::vector<ExprId> parts;
    for (const Json& item : value) {
      if (!parts.empty()) parts.push_back(comma());
      parts.push_back(constant(item));
    }
    return array_of(g_.seq(std::move(parts)));
  }
  return g_.literal(dump_json(value));
}

// Keys that differ from all of `keys`, which agree in their first `depth` characters with what was
// read: end here if no key does, or go on. Characters are written plainly, so no escape spells one
// of the keys.
ExprId JsonText::free_key_rest(const std::vector<std::u32string>& keys, size_t depth) {
  std::vector<ExprId> branches;
  const bool ends = std::any_of(keys.begin(), keys.end(),
                                [&](const std::u32string& k) { return k.size() == depth; });
  if (!ends) branches.push_back(g_.empty());
  std::vector<CharRange> next;
  for (size_t i = 0; i < keys.size();) {
    if (keys[i].size() == depth) {
      ++i;
      continue;
    }
    const char32_t c = keys[i][depth];
    size_t end = i;
    while (end < keys.size() && keys[end].size() > depth && keys[end][depth] == c) ++end;
    next.push_back({c, c});
    if (plain_characters().contains(c)) {
      const std::vector<std::u32string> same(keys.begin() + static_cast<ptrdiff_t>(i),
                                             keys.begin() + static_cast<ptrdiff_t>(end));
      // Shared beginnings are long at times: no nesting of expressions for each character.
      branches.push_back(
          g_.seq({g_.chars(CharSet::one(c)), g_.call_of(free_key_rest(same, depth + 1))}));
    }
    i = end;
  }
  const ExprId other = g_.chars(plain_characters().without(CharSet(std::move(next))));
  branches.push_back(
      g_.seq({other, g_.repeat(g_.chars(plain_characters()), 0, kKeyCharacters - 1)}));
  return g_.alt(std::move(branches));
}

ExprId JsonText::key_except(const std::vector<std::string>& keys) {
  if (keys.empty()) return string(g_.repeat(any_character(), 0, kKeyCharacters));
  std::vector<std::u32string> sorted;
  for (const std::string& key : keys) sorted.push_back(characters_of(key));
  std::sort(sorted.begin(), sorted.end());
  return string(free_key_rest(sorted, 0));
}

}  // namespace pagefold::grammar
