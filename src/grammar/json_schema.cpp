#include "grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "grammar/json_text.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_types.h"

namespace pagefold::grammar {
namespace {

constexpr int kMaxNesting = 100;  // of schemas on the way, references not counted

constexpr std::array kOtherWords = {"type",  "enum", "const",  "anyOf",   "oneOf",
                                    "allOf", "$ref", "format", "nullable"};

class SchemaBuilder {
 public:
  SchemaBuilder(Grammar& grammar, const Json& root)
      : g_(grammar),
        text_(grammar),
        root_(root),
        context_{g_, text_, [this](const Json& s, const std::string& path, int depth) {
                   return schema(s, path, depth);
                 }} {}

  Result<ExprId> schema(const Json& s, const std::string& path, int depth) {
    if (s.is_boolean()) return s.get<bool>() ? text_.any_value() : g_.never();
    if (!s.is_object()) {
      return bad_input("{}: a schema is an object or a boolean, got {}", path, json_kind(s));
    }
    if (++parts_ > kMaxSchemaParts || g_.full()) {
      return bad_input("{}: the schema is too large", path);
    }
    if (depth > kMaxNesting) {
      return bad_input("{}: more than {} schemas inside each other", path, kMaxNesting);
    }
    PF_TRY(check_words(s, path));
    if (s.contains("$ref")) return reference(s, path, depth);
    if (s.contains("allOf")) return all_of(s, path, depth);
    for (const char* word : {"anyOf", "oneOf"}) {
      if (s.contains(word)) return alternatives(s, word, path, depth);
    }
    if (s.contains("const") || s.contains("enum")) return constants(s, path);
    return typed(s, path, depth);
  }

 private:
  Status check_words(const Json& s, const std::string& path) const {
    for (const auto& [word, value] : s.items()) {
      if (is_annotation(word) || in(kOtherWords, word) || in(kObjectWords, word) ||
          in(kArrayWords, word) || in(kStringWords, word) || in(kNumberWords, word)) {
        continue;
      }
      if (word == "uniqueItems" && value == Json(false)) continue;
      return bad_input("{}: the keyword \"{}\" is not supported", path, shown_name(word));
    }
    return ok_status();
  }

  static Json without(const Json& s, const char* word) {
    Json rest = s;
    rest.erase(word);
    return rest;
  }
  static bool only_annotations(const Json& s) {
    return std::all_of(s.items().begin(), s.items().end(),
                       [](const auto& item) { return is_annotation(item.key()); });
  }

  Result<const Json*> resolve(const Json& ref, const std::string& path) const {
    if (!ref.is_string()) return bad_input("{}: $ref is a string", path);
    std::string_view pointer = ref.get_ref<const std::string&>();
    if (pointer != "#" && !pointer.starts_with("#/")) {
      return bad_input("{}: $ref is understood as \"#\" or \"#/...\" only", path);
    }
    const Json* at = &root_;
    pointer.remove_prefix(1);
    while (!pointer.empty()) {
      pointer.remove_prefix(1);
      const size_t end = std::min(pointer.find('/'), pointer.size());
      std::string name(pointer.substr(0, end));
      pointer.remove_prefix(end);
      for (size_t i = 0; (i = name.find('~', i)) != std::string::npos && i + 1 < name.size(); ++i) {
        if (name[i + 1] == '0' || name[i + 1] == '1')
          name.replace(i, 2, name[i + 1] == '0' ? "~" : "/");
      }
      const Json* next = nullptr;
      if (at->is_object() && at->contains(name)) {
        next = &(*at)[name];
      } else if (at->is_array() && !name.empty() && name.size() < 8 &&
                 std::all_of(name.begin(), name.end(),
                             [](char c) { return c >= '0' && c <= '9'; }) &&
                 std::stoul(name) < at->size()) {
        next = &(*at)[std::stoul(name)];
      }
      if (next == nullptr) return bad_input("{}: $ref leads to nothing", path);
      at = next;
    }
    return at;
  }

  Result<ExprId> reference(const Json& s, const std::string& path, int depth) {
    PF_ASSIGN(const Json* target, resolve(s["$ref"], path));
    const Json rest = without(s, "$ref");
    if (!only_annotations(rest)) {
      PF_ASSIGN(const Json merged, merge_schemas(*target, rest, path));
      return schema(merged, path, depth + 1);
    }
    const auto [it, fresh] = references_.try_emplace(target, 0);
    if (fresh) {
      const RuleId rule = g_.declare();
      it->second = rule;
      PF_ASSIGN(const ExprId body, schema(*target, path + "/$ref", depth + 1));
      g_.define(rule, body);
      return g_.call(rule);
    }
    return g_.call(it->second);
  }

  // Schemas in a list; a member that is a bare $ref is replaced by what it refers to.
  Result<Json> member(const Json& s, const std::string& path) const {
    const Json* at = &s;
    for (int hops = 0; at->is_object() && at->contains("$ref"); ++hops) {
      if (hops > 32) return bad_input("{}: $ref leads to itself", path);
      PF_ASSIGN(const Json* target, resolve((*at)["$ref"], path));
      if (!only_annotations(without(*at, "$ref"))) {
        return merge_schemas(*target, without(*at, "$ref"), path);
      }
      at = target;
    }
    return *at;
  }

  Result<ExprId> all_of(const Json& s, const std::string& path, int depth) {
    const Json& list = s["allOf"];
    if (!list.is_array() || list.empty()) return bad_input("{}/allOf: expected a list", path);
    const Json rest = without(s, "allOf");
    if (list.size() == 1 && only_annotations(rest))
      return schema(list[0], path + "/allOf/0", depth + 1);
    Json merged = rest;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string at = fmt::format("{}/allOf/{}", path, i);
      PF_ASSIGN(const Json one, member(list[i], at));
      PF_ASSIGN(merged, merge_schemas(merged, one, at));
    }
    return schema(merged, path, depth + 1);
  }

  Result<ExprId> alternatives(const Json& s, const char* word, const std::string& path, int depth) {
    const Json& list = s[word];
    if (!list.is_array() || list.empty()) return bad_input("{}/{}: expected a list", path, word);
    const Json rest = without(s, word);
    const bool bare = only_annotations(rest);
    std::vector<Json> merged;
    std::vector<ExprId> branches;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string at = fmt::format("{}/{}/{}", path, word, i);
      if (bare) {
        PF_ASSIGN(const ExprId branch, schema(list[i], at, depth + 1));
        branches.push_back(branch);
        continue;
      }
      PF_ASSIGN(const Json one, member(list[i], at));
      PF_ASSIGN(const Json both, merge_schemas(one, rest, at));
      PF_ASSIGN(const ExprId branch, schema(both, at, depth + 1));
      branches.push_back(branch);
    }
    if (std::string_view(word) == "oneOf") PF_TRY(check_disjoint(list, path));
    return g_.alt(std::move(branches));
  }

  Status check_disjoint(const Json& list, const std::string& path) const {
    if (list.size() > 100) return bad_input("{}/oneOf: at most 100 branches", path);
    std::vector<Json> plain;
    for (const Json& s : list) {
      PF_ASSIGN(Json one, member(s, path));
      plain.push_back(std::move(one));
    }
    for (size_t i = 0; i < plain.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (surely_disjoint(plain[i], plain[k])) continue;
        return bad_input("{}/oneOf: branches {} and {} may both hold; use anyOf", path, k, i);
      }
    }
    return ok_status();
  }

  Result<ExprId> constants(const Json& s, const std::string& path) {
    for (const auto& [word, value] : s.items()) {
      if (in(kObjectWords, word) || in(kArrayWords, word) || in(kStringWords, word) ||
          in(kNumberWords, word)) {
        return bad_input("{}: \"{}\" beside enum or const is not supported", path, word);
      }
    }
    Json values = Json::array();
    if (s.contains("const")) values.push_back(s["const"]);
    if (s.contains("enum")) {
      const Json& list = s["enum"];
      if (!list.is_array() || list.empty()) return bad_input("{}/enum: expected a list", path);
      if (values.empty()) {
        values = list;
      } else if (std::find(list.begin(), list.end(), values[0]) == list.end()) {
        return g_.never();
      }
    }
    const std::vector<std::string> types = types_of(s);
    std::vector<std::string> plain;
    std::vector<ExprId> branches;
    for (const Json& v : values) {
      if (!types.empty() && !std::any_of(types.begin(), types.end(),
                                         [&](const std::string& t) { return has_type(v, t); })) {
        continue;
      }
      if (v.is_structured()) {
        branches.push_back(text_.constant(v));
      } else {
        plain.push_back(dump_json(v));
      }
    }
    if (!plain.empty()) branches.push_back(g_.choice(std::move(plain)));
    return g_.alt(std::move(branches));
  }
  static bool has_type(const Json& v, std::string_view type) {
    if (type == "integer") return v.is_number_integer();
    if (type == "number") return v.is_number();
    return json_kind(v) == type;
  }

  Result<ExprId> typed(const Json& s, const std::string& path, int depth) {
    std::vector<std::string> types = types_of(s);
    if (s.contains("type") && types.empty()) {
      return bad_input("{}/type: expected the name of a type or a list of names", path);
    }
    if (types.empty()) {
      if (any_of(s, kObjectWords)) types.emplace_back("object");
      if (any_of(s, kArrayWords)) types.emplace_back("array");
      if (any_of(s, kStringWords) || s.contains("format")) types.emplace_back("string");
      if (any_of(s, kNumberWords)) types.emplace_back("number");
      if (types.empty()) return text_.any_value();
    }
    if (s.contains("nullable") && s["nullable"] == Json(true) && !in(types, "null")) {
      types.emplace_back("null");
    }
    std::vector<ExprId> branches;
    for (const std::string& type : types) {
      PF_ASSIGN(const ExprId one, typed_schema_expr(type, s, path, depth, context_));
      branches.push_back(one);
    }
    return g_.alt(std::move(branches));
  }

  Grammar& g_;
  JsonText text_;
  const Json& root_;
  const SchemaContext context_;
  size_t parts_ = 0;
  std::map<const Json*, RuleId> references_;
};

}  // namespace

Result<ExprId> schema_expr(Grammar& grammar, const Json& schema) {
  return SchemaBuilder(grammar, schema).schema(schema, "#", 0);
}

ExprId json_object_expr(Grammar& grammar) { return JsonText(grammar).any_object(); }

}  // namespace pagefold::grammar
