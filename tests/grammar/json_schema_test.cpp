#include <chrono>

#include "grammar_tools.h"

namespace pagefold::grammar::test {
namespace {

TEST(JsonSchema, Objects) {
  const auto g = of_schema(R"({"type":"object","properties":{"a":{"type":"integer"},
      "b":{"type":"string"},"c":{"type":"boolean"}},"required":["b"]})");
  expect_texts(*g,
               {R"({"b":""})", R"({"a": 1, "b": "x"})", R"({"b":"x","c":true})",
                "{\n  \"a\": 0,\n  \"b\": \"\\u00e9\\n\"\n}", R"({"a":-7,"b":"","c":false})"},
               {R"({})", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":"x",})", R"({"b":1})",
                R"({"b":"x","d":1})", R"({"a":01,"b":""})",
                R"({"b":"x"})"
                " ",
                R"({"b":"x","b":"x"})"});
  expect_texts(
      *of_schema(R"({"properties":{"a":{"const":1}},"additionalProperties":{"type":"null"}})"),
      {R"({"a":1,"b":null,"ab":null})", "{}", R"({"":null})", R"({"b":null})", R"({"a":1})"},
      {R"({"a":null})", R"({"b":null,"a":null})", R"({"b":1})", R"({"\u0061":null})"});
  expect_texts(*of_schema(R"({"type":"object","additionalProperties":{"type":"integer"},
      "minProperties":1,"maxProperties":2})"),
               {R"({"x":1})", R"({"x":1,"y":2})"}, {"{}", R"({"x":1,"y":2,"z":3})"});
  expect_texts(*of_schema(R"({"propertyNames":{"pattern":"^[a-c]$"},"additionalProperties":true})"),
               {R"({"a":1,"c":[]})", "{}"}, {R"({"d":1})", R"({"":1})"});
  expect_texts(*of_schema(R"({"type":"object","properties":{},"additionalProperties":false})"),
               {"{}", "{ }"}, {R"({"x":1})"});
}

TEST(JsonSchema, Arrays) {
  expect_texts(
      *of_schema(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})"),
      {"[1]", "[1, 2]", "[1,2,3]"}, {"[]", "[1,2,3,4]", "[1,]", "[,1]", "[true]"});
  expect_texts(*of_schema(R"({"prefixItems":[{"const":"a"},{"const":"b"}],"items":{"const":"c"},
      "minItems":1})"),
               {R"(["a"])", R"(["a","b"])", R"(["a","b","c","c"])"},
               {"[]", R"(["b"])", R"(["a","c"])"});
  expect_texts(*of_schema(R"({"items":[{"type":"null"},{"type":"null"}],"additionalItems":false})"),
               {"[]", "[null]", "[null,null]"}, {"[null,null,null]"});
  expect_texts(*of_schema(R"({"prefixItems":[{"const":1},{"const":2},{"const":3}],"maxItems":2,
      "minItems":2})"),
               {"[1,2]"}, {"[1]", "[1,2,3]"});
}

TEST(JsonSchema, Strings) {
  expect_texts(*of_schema(R"({"type":"string","minLength":1,"maxLength":2})"),
               {R"("a")", R"("é😀")", R"("\n\"")", R"("\ud83d\ude00x")"},
               {R"("")", R"("abc")", R"("a)", "\"\n\"", R"("\ud83d")", R"("\x")"});
  expect_texts(*of_schema(R"({"type":"string","pattern":"^[A-Z]{2}\\d+$"})"), {R"("AB1")"},
               {R"("AB")", R"("xAB1")"});
  expect_texts(*of_schema(R"({"type":"string","pattern":"b+"})"), {R"("b")", R"("xxbbx")"},
               {R"("xx")", R"("")"});
  expect_texts(*of_schema(R"({"type":"string","pattern":"^[\"\\\\\\n]$"})"),
               {R"("\"")", R"("\\")", R"("\n")"}, {R"("n")", "\"\n\"", R"(""")"});
  expect_texts(*of_schema(R"({"type":"string","format":"date"})"),
               {R"("2024-02-28")", R"("1999-12-31")"}, {R"("2024-13-01")", R"("2024-04-31")"});
  expect_texts(*of_schema(R"({"format":"uuid"})"), {R"("123e4567-e89b-12d3-a456-426614174000")"},
               {R"("123e4567")"});
  expect_texts(*of_schema(R"({"format":"ipv4"})"), {R"("255.0.10.1")"},
               {R"("256.0.0.1")", R"("01.1.1.1")"});
}

TEST(JsonSchema, ValuesAndAlternatives) {
  expect_texts(*of_schema(R"({"enum":["red","green",3,null,{"a":[1]}]})"),
               {R"("red")", "3", "null", R"({"a": [1]})"}, {R"("blue")", "4", R"({"a":[2]})"});
  expect_texts(*of_schema(R"({"type":"string","enum":["a",1]})"), {R"("a")"}, {"1"});
  expect_texts(*of_schema(R"({"anyOf":[{"type":"integer"},{"type":"null"}]})"), {"1", "null"},
               {"true", "1.5"});
  expect_texts(*of_schema(R"({"type":["string","null"],"maxLength":1})"), {R"("a")", "null"},
               {R"("ab")"});
  expect_texts(*of_schema(R"({"type":"integer","nullable":true})"), {"7", "null"}, {"\"\""});
  expect_texts(*of_schema(R"({"oneOf":[{"properties":{"k":{"const":"a"},"x":{"type":"integer"}},
      "required":["k","x"]},{"properties":{"k":{"const":"b"}},"required":["k"]}]})"),
               {R"({"k":"a","x":1})", R"({"k":"b"})"}, {R"({"k":"a"})", R"({"k":"b","x":1})"});
  expect_texts(
      *of_schema(R"({"allOf":[{"type":"number","minimum":3},{"type":"integer"},{"maximum":5}]})"),
      {"3", "4", "5"}, {"2", "6", "3.5"});
  expect_texts(*of_schema(R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
      {"properties":{"b":{"type":"integer"}},"required":["b"]}]})"),
               {R"({"a":1,"b":2})"}, {R"({"a":1})", R"({"b":2})"});
  expect_texts(*of_schema("true"), {"1", "[{}]", R"({"a":[true,1.5e3]})"}, {"", "tru", "{]"});
  expect_texts(*of_schema("{}"), {"[[[]]]", "-0.5"}, {"+1", ".5"});
}

TEST(JsonSchema, References) {
  const auto tree = of_schema(R"({"$defs":{"node":{"type":"object","properties":{
      "v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
      "required":["v","next"]}},"$ref":"#/$defs/node"})");
  expect_texts(*tree, {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
               {R"({"v":1})", R"({"v":1,"next":{"v":2}})"});
  expect_texts(*of_schema(R"({"type":"array","items":{"$ref":"#"}})"), {"[]", "[[],[[]]]"},
               {"[1]"});
}

// Nesting ends at a bound, and whatever was begun can still be closed there.
TEST(JsonSchema, DeepNestingCanAlwaysBeClosed) {
  Grammar g;
  const auto made = TokenGrammar::make(g, g.rule_of(json_object_expr(g)), vocabulary());
  ASSERT_TRUE(made.ok());
  for (const std::string step : {R"({"a":)", R"({"a":[)"}) {
    std::string text;
    int depth = 0;
    while ((*made)->matches_prefix(text + step)) {
      text += step;
      ++depth;
    }
    EXPECT_GE(depth, 20);
    EXPECT_LE(depth, Network::kMaxDepth);
    std::string closed = text;
    if (step.ends_with(':')) closed += '1';
    for (int i = 0; i < depth; ++i) closed += step.ends_with('[') ? "]}" : "}";
    EXPECT_TRUE((*made)->matches(closed)) << closed;
  }
}

TEST(JsonSchema, RefusesByNameAndPath) {
  for (const auto& [schema, word] : std::vector<std::pair<std::string, std::string>>{
           {R"({"properties":{"a":{"multipleOf":3}}})",
            "#/properties/a: the keyword \"multipleOf\""},
           {R"({"not":{}})", "\"not\""},
           {R"({"uniqueItems":true})", "uniqueItems"},
           {R"({"patternProperties":{}})", "patternProperties"},
           {R"({"$ref":"other.json"})", "$ref"},
           {R"({"$ref":"#/nowhere"})", "nothing"},
           {R"({"$ref":"#"})", "contains itself"},
           {R"({"anyOf":[]})", "expected a list"},
           {R"({"type":"strin"})", "no such type"},
           {R"({"type":7})", "expected the name"},
           {"7", "a schema is an object"},
           {R"({"pattern":"("})", "#/pattern"},
           {R"({"pattern":7})", "expected a string"},
           {R"({"oneOf":[{"type":"string"},{"type":"string"}]})", "may both hold"},
           {R"({"format":"iri"})", "format"},
           {R"({"minLength":-1,"type":"string"})", "whole number"},
           {R"({"pattern":"^a","maxLength":3})", "beside"},
           {R"({"type":"string","enum":[1]})", "no text"},
           {R"({"properties":{"<|im_end|>":{"if":{}}}})", "#/properties/...: the keyword \"if\""},
           {R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})", "no text"}}) {
    const auto made = try_schema(Json::parse(schema));
    ASSERT_FALSE(made.ok()) << schema;
    EXPECT_NE(made.status().message().find(word), std::string::npos)
        << schema << ": " << made.status().message();
  }
}

TEST(JsonSchema, HostileOnesEndInUnderASecond) {
  const auto timed = [](const Json& schema) {
    const auto begin = std::chrono::steady_clock::now();
    (void)try_schema(schema);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 5.0) << dump_json(schema).substr(0, 100);  // sanitizers are slow
  };
  Json doubling = {{"$ref", "#/$defs/d0"}};
  for (int i = 0; i < 40; ++i) {
    const Json next = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    doubling["$defs"]["d" + std::to_string(i)] = {{"anyOf", {next, next}}};
  }
  doubling["$defs"]["d40"] = {{"type", "null"}};
  timed(doubling);
  Json all = {{"allOf", Json::array()}};
  for (int i = 0; i < 12; ++i) {
    all["allOf"].push_back({{"anyOf", {{{"minimum", i}}, {{"maximum", i}}, {{"type", "null"}}}}});
  }
  timed(all);
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 400; ++i) wide["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  timed(wide);
  Json deep = {{"type", "integer"}};
  for (int i = 0; i < 60; ++i) deep = {{"type", "array"}, {"items", deep}};
  timed(deep);
  Json nested_counts = {{"type", "string"}, {"maxLength", 100000}};
  for (int i = 0; i < 10; ++i) nested_counts = {{"items", nested_counts}, {"minItems", 100000}};
  timed(nested_counts);
  Json self = {{"allOf", {{{"$ref", "#"}}}}};
  timed(self);
  timed({{"anyOf", {{{"$ref", "#"}}, {{"$ref", "#"}}}}});
  timed({{"$ref", "#/$defs/a"}, {"$defs", {{"a", {{"$ref", "#/$defs/a"}, {"type", "null"}}}}}});
}

}  // namespace
}  // namespace pagefold::grammar::test
