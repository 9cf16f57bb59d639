#include "grammar/schema_merge.h"

#include <algorithm>
#include <array>

namespace pagefold::grammar {
namespace {

constexpr int kMaxDepth = 64;

bool is_false(const Json& s) { return s.is_boolean() && !s.get<bool>(); }

Json meet_of_types(const Json& a, const Json& b) {
  Json out = Json::array();
  const auto has = [](const std::vector<std::string>& list, std::string_view type) {
    return std::find(list.begin(), list.end(), type) != list.end();
  };
  const std::vector<std::string> x = types_of({{"type", a}}), y = types_of({{"type", b}});
  for (const std::string& type : x) {
    if (has(y, type) || (type == "integer" && has(y, "number"))) {
      out.push_back(type);
    } else if (type == "number" && has(y, "integer")) {
      out.push_back("integer");
    }
  }
  return out;
}

Json meet_of_lists(const Json& a, const Json& b) {
  Json out = Json::array();
  for (const Json& item : a) {
    if (std::find(b.begin(), b.end(), item) != b.end()) out.push_back(item);
  }
  return out;
}

Json join_of_lists(const Json& a, const Json& b) {
  Json out = a;
  for (const Json& item : b) {
    if (std::find(out.begin(), out.end(), item) == out.end()) out.push_back(item);
  }
  return out;
}

// Members that only one side lists are, on the other side, additional ones.
Result<Json> merge_properties(const Json& a, const Json& b, const std::string& path, int depth) {
  const auto part = [](const Json& s, const char* name) {
    const auto it = s.find(name);
    return it == s.end() ? Json(nullptr) : *it;
  };
  const Json pa = part(a, "properties"), pb = part(b, "properties");
  const Json ra = part(a, "additionalProperties"), rb = part(b, "additionalProperties");
  Json out = Json::object();
  for (const auto& [key, schema] : pa.items()) {
    const Json other = pb.contains(key) ? pb[key] : rb;
    if (other.is_null()) {
      out[key] = schema;
      continue;
    }
    PF_ASSIGN(out[key], merge_schemas(schema, other, path + "/properties", depth + 1));
  }
  for (const auto& [key, schema] : pb.items()) {
    if (out.contains(key)) continue;
    if (ra.is_null()) {
      out[key] = schema;
      continue;
    }
    PF_ASSIGN(out[key], merge_schemas(schema, ra, path + "/properties", depth + 1));
  }
  return out;
}

// The meet of one keyword that both have with different values.
Result<Json> merge_keyword(const std::string& key, const Json& a, const Json& b,
                           const std::string& path, int depth) {
  constexpr std::array kRaise = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                 "minProperties"};
  constexpr std::array kLower = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                 "maxProperties"};
  const auto in = [&key](const auto& list) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  if (key == "type") return meet_of_types(a, b);
  if (key == "enum" && a.is_array() && b.is_array()) return meet_of_lists(a, b);
  if (key == "required" && a.is_array() && b.is_array()) return join_of_lists(a, b);
  if (a.is_number() && b.is_number() && (in(kRaise) || in(kLower))) {
    return in(kRaise) == (a.get<double>() < b.get<double>()) ? b : a;
  }
  if (key == "items" || key == "additionalProperties") {
    return merge_schemas(a, b, path + "/" + key, depth + 1);
  }
  if ((key == "anyOf" || key == "oneOf") && a.is_array() && b.is_array() &&
      a.size() * b.size() <= 64) {
    Json out = Json::array();
    for (const Json& x : a) {
      for (const Json& y : b) {
        PF_ASSIGN(Json both, merge_schemas(x, y, path + "/" + key, depth + 1));
        if (!is_false(both)) out.push_back(std::move(both));
      }
    }
    return out;
  }
  return bad_input("{}: two schemas that must hold at once differ in \"{}\"", path,
                   shown_name(key));
}

}  // namespace

std::string shown_name(std::string_view name) {
  const bool plain = name.size() <= 40 && std::all_of(name.begin(), name.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '-';
                     });
  return plain ? std::string(name) : "...";
}

bool is_annotation(std::string_view k) {
  constexpr std::array kNames = {
      "title",           "description",     "default",   "examples",    "example",
      "deprecated",      "readOnly",        "writeOnly", "$schema",     "$id",
      "$comment",        "$defs",           "strict",    "definitions", "discriminator",
      "contentEncoding", "contentMediaType"};
  return std::find(kNames.begin(), kNames.end(), k) != kNames.end() || k.starts_with("x-");
}

std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> out;
  const auto type = schema.find("type");
  if (type == schema.end()) return out;
  if (type->is_string()) out.push_back(type->get<std::string>());
  if (type->is_array()) {
    for (const Json& t : *type) {
      if (t.is_string()) out.push_back(t.get<std::string>());
    }
  }
  const bool number = std::find(out.begin(), out.end(), "number") != out.end();
  if (number) std::erase(out, "integer");
  return out;
}

Result<Json> merge_schemas(const Json& a, const Json& b, const std::string& path, int depth) {
  if (depth > kMaxDepth) return bad_input("{}: more than 64 schemas inside each other", path);
  if (is_false(a) || is_false(b)) return Json(false);
  if (a.is_boolean()) return b;
  if (b.is_boolean()) return a;
  if (!a.is_object() || !b.is_object()) return bad_input("{}: a schema is an object", path);
  Json out = a;
  if (a.contains("properties") || b.contains("properties")) {
    PF_ASSIGN(out["properties"], merge_properties(a, b, path, depth));
  }
  for (const auto& [key, value] : b.items()) {
    if (key == "properties") continue;
    const auto mine = out.find(key);
    if (mine == out.end()) {
      out[key] = value;
    } else if (key == "const" && *mine != value) {
      return Json(false);
    } else if (*mine != value && !is_annotation(key)) {
      PF_ASSIGN(*mine, merge_keyword(key, *mine, value, path, depth));
    }
  }
  for (const char* key : {"type", "enum", "anyOf", "oneOf"}) {
    const auto it = out.find(key);
    if (it != out.end() && it->is_array() && it->empty()) return Json(false);
  }
  return out;
}

bool surely_disjoint(const Json& a, const Json& b) {
  if (!a.is_object() || !b.is_object()) return is_false(a) || is_false(b);
  const auto values = [](const Json& s) {
    if (s.contains("const")) return Json::array({s["const"]});
    return s.contains("enum") && s["enum"].is_array() ? s["enum"] : Json(nullptr);
  };
  const Json x = values(a), y = values(b);
  if (x.is_array() && y.is_array()) return meet_of_lists(x, y).empty();
  if (a.contains("type") && b.contains("type") && meet_of_types(a["type"], b["type"]).empty()) {
    return true;
  }
  const auto member = [](const Json& s, const std::string& name) -> const Json* {
    const auto required = s.find("required");
    const auto properties = s.find("properties");
    if (required == s.end() || properties == s.end() || !required->is_array() ||
        !properties->is_object() || !properties->contains(name) ||
        std::find(required->begin(), required->end(), Json(name)) == required->end()) {
      return nullptr;
    }
    return &(*properties)[name];
  };
  if (!a.contains("properties") || !a["properties"].is_object()) return false;
  for (const auto& [name, schema] : a["properties"].items()) {
    const Json* mine = member(a, name);
    const Json* other = member(b, name);
    if (mine != nullptr && other != nullptr && mine->is_object() && other->is_object() &&
        !mine->contains("properties") && surely_disjoint(*mine, *other)) {
      return true;
    }
  }
  return false;
}

}  // namespace pagefold::grammar
