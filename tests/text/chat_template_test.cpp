#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <sstream>

#include "base/json.h"

namespace pagefold {
namespace {

constexpr int64_t kFixedTime = 1721952000;  // 2024-07-26 00:00 UTC, as tools/record_templates.py

Json golden() {
  std::ifstream in(PAGEFOLD_SOURCE_DIR "/tests/text/golden/templates.json");
  std::stringstream text;
  text << in.rdbuf();
  auto json = parse_json(text.str());
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json::object();
}

Result<std::string> render(const std::string& source, const Json& context = Json::object(),
                           TemplateLimits limits = {}) {
  limits.fixed_time = kFixedTime;
  PF_ASSIGN(const ChatTemplate t, ChatTemplate::parse(source, limits));
  return t.render(context);
}

// A golden result is the text, {"error": true}, or {"raised": message}.
void check(const Json& want, const Result<std::string>& got, const std::string& what) {
  if (want.is_string()) {
    ASSERT_TRUE(got.ok()) << what << ": " << got.status();
    EXPECT_EQ(*got, want.get<std::string>()) << what;
    return;
  }
  ASSERT_FALSE(got.ok()) << what << " rendered as " << *got;
  if (!want.contains("raised")) return;
  EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument) << what;
  EXPECT_EQ(message_of(got.status()), want["raised"].get<std::string>()) << what;
}

TEST(ChatTemplate, FamiliesEqualJinja2) {
  const Json g = golden();
  int n = 0;
  for (const auto& [name, family] : g["families"].items()) {
    for (size_t i = 0; i < family["expected"].size(); ++i) {
      const Json& c = g["conversations"][i];
      check(family["expected"][i], render(family["template"], c), name + " " + std::to_string(i));
      ++n;
    }
  }
  EXPECT_GE(n, 60);
}

TEST(ChatTemplate, SnippetsEqualJinja2) {
  const Json g = golden();
  for (const auto& snippet : g["snippets"]) {
    check(snippet[1], render(snippet[0], g["context"]), snippet[0]);
  }
  EXPECT_GE(g["snippets"].size(), 200u);
}

// Of this thread: a busy machine must not fail the test.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

TEST(ChatTemplate, HostileTemplatesFailFast) {
  const auto deep = [](const std::string& a, int n, const std::string& b) {
    std::string s;
    for (int i = 0; i < n; ++i) s += a;
    for (int i = 0; i < n; ++i) s += b;
    return s;
  };
  const std::string cases[] = {
      "{{ 'x' * 10**9 }}",
      "{{ range(10**9) | list }}",
      "{{ 9 ** 9 ** 9 }}",
      "{{ [0] * 10**10 }}",
      "{% set x = 'ab' * 100000 %}{{ x | replace('', x) }}",
      "{% set n = namespace(x='xxxxxxxx') %}{% for i in range(99999) %}{% set n.x = n.x ~ n.x %}"
      "{% endfor %}",
      "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x, n.x] %}{% endfor "
      "%}",
      "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
      "{{ n.x }}",
      "{% set n = namespace(x={}) %}{% for i in range(99999) %}{% set n.x = {'a': [n.x.items]} %}"
      "{% endfor %}",
      "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
      "{% for i in range(99999) %}{{ 'x' * 1000000 }}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(x) %}{{ f(x ~ x) }}{{ f(x) }}{% endmacro %}{{ f('a') }}",
      "{{ strftime_now('%999999d') }}",
      "{{ '%999999999d' | format(1) }}",
      "{{ 'x' | indent(999999999) }}",
      "{{ 'x'.zfill(999999999999) }}",
      deep("{{ (", 1, "") + deep("(", 100000, ")"),
      "{{ " + deep("[", 5000, "]") + " }}",
      "{{ " + deep("-", 5000, "") + "1 }}",
      "{{ " + deep("not ", 5000, "") + "1 }}",
      "{{ a" + deep(".a", 5000, "") + " }}",
      "{{ a" + deep("|e", 5000, "") + " }}",
      "{{ " + deep("1 if 1 else ", 5000, "") + "1 }}",
      deep("{% if 1 %}", 5000, "{% endif %}"),
      "{% set " + deep("(", 5000, ")") + " = 1 %}",
      "{% set x = {} %}{{ x.update({'a': 1}) }}",
      "{% set x = [] %}{{ x.append(1) }}",
      "{% include 'x' %}",
      "{% import 'x' as y %}",
      "{% extends 'x' %}",
      "\xff",
  };
  for (const auto& source : cases) {
    const double start = cpu_seconds();
    const auto got = render(source);
    const double seconds = cpu_seconds() - start;
    EXPECT_FALSE(got.ok()) << source.substr(0, 100);
    EXPECT_FALSE(got.status().message().empty());
#ifdef NDEBUG
    EXPECT_LT(seconds, 1.0) << source.substr(0, 100);
#endif
  }
}

TEST(ChatTemplate, CyclesThroughNamespacesAndMacrosAreFreed) {
  EXPECT_TRUE(render("{% set a = namespace() %}{% set a.me = a %}{% macro f() %}{% endmacro %}"
                     "{% set a.f = f %}{{ a.me.me.x is defined }}")
                  .ok());
  EXPECT_TRUE(render("{% set n = namespace(x=0) %}{% for i in range(20000) %}"
                     "{% set n.x = namespace(x=n.x) %}{% endfor %}")
                  .ok());
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  const auto t = ChatTemplate::parse("a\nb\n{{ 1 + }}");
  ASSERT_FALSE(t.ok());
  EXPECT_NE(message_of(t.status()).find("line 3"), std::string::npos) << t.status();
  const auto r = render("a\n{{ x.y.z }}");
  EXPECT_NE(message_of(r.status()).find("line 2"), std::string::npos) << r.status();
}

TEST(ChatTemplate, SourceSizeIsLimited) {
  TemplateLimits limits;
  limits.max_source_bytes = 10;
  EXPECT_FALSE(ChatTemplate::parse("12345678901", limits).ok());
}

TEST(ChatTemplate, BadUtf8InTheContextIsRepaired) {
  const auto got = render("{{ x }}{{ x | length }}", Json{{"x", "a\xff\xc3"}});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got,
            "a\xEF\xBF\xBD\xEF\xBF\xBD"
            "3");
}

}  // namespace
}  // namespace pagefold
