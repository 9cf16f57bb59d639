// JSON as text: the parts that JSON schemas are made of.
//
// Layout is free within bounds, so that a model keeps its habits and cannot run off: after an
// opening bracket or a comma, and before a closing bracket, nothing, a space, or a line end with up
// to 20 spaces or tabs; after a colon at most one space. Numbers have at most 15 digits before and
// after the point and an exponent of at most two.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "grammar/grammar.h"

namespace pagefold::grammar {

// Builds each part once.
class JsonText {
 public:
  explicit JsonText(Grammar& grammar) : g_(grammar) {}

  ExprId gap();  // white space between values
  ExprId comma() { return g_.seq({g_.literal(","), gap()}); }
  ExprId colon() { return g_.seq({g_.literal(":"), g_.optional(g_.literal(" "))}); }
  // One character of a set inside a string, escaped where JSON wants it.
  ExprId character(const CharSet& set);
  ExprId any_character();  // also as \uXXXX
  ExprId string(ExprId content) { return g_.seq({g_.literal("\""), content, g_.literal("\"")}); }
  ExprId any_string();
  ExprId integer();
  ExprId number();
  ExprId boolean() { return g_.alt({g_.literal("true"), g_.literal("false")}); }
  ExprId any_value();  // whatever JSON there is
  ExprId any_object();
  ExprId any_array();
  ExprId object_of(ExprId pairs);  // { pairs }
  ExprId array_of(ExprId items);
  // item, item, ...: from min to max of them.
  ExprId list(ExprId item, int min, int max);
  // A value as it is written, with free layout inside.
  ExprId constant(const Json& value);
  std::string quoted(std::string_view text) const;
  // A string key that is none of these, of at most 64 characters (behind what it shares with one).
  ExprId key_except(const std::vector<std::string>& keys);

 private:
  void define_values();
  ExprId free_key_rest(const std::vector<std::u32string>& keys, size_t depth);
  Grammar& g_;
  std::optional<RuleId> gap_, any_character_, any_string_, number_, value_, object_, array_;
};

}  // namespace pagefold::grammar
