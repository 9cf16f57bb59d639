#include <regex>

#include "grammar_tools.h"

namespace pagefold::grammar::test {
namespace {

TEST(Regex, MatchesWholeTexts) {
  expect_texts(*of_regex("a|bc|d*"), {"a", "bc", "", "d", "ddd"}, {"b", "ad", "abc", "e"});
  expect_texts(*of_regex("(?:ab)+c?"), {"ab", "abab", "ababc"}, {"", "a", "abcc"});
  expect_texts(*of_regex("^x{2,3}$|^y{2}$"), {"xx", "xxx", "yy"}, {"x", "xxxx", "y", "yyy"});
  expect_texts(*of_regex("[^a-c\\]]"), {"d", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"},
               {"a", "]", "dd", "\xC3", "\xFF", "\xED\xA0\x80"});
  expect_texts(*of_regex("."), {"x", "\xC3\xA9"}, {"\n", "", "\xC3\xA9\xC3\xA9"});
  expect_texts(*of_regex("[\\d_-]+\\.\\x41\\u00e9\\u{1F600}"), {"1_-.A\xC3\xA9\xF0\x9F\x98\x80"},
               {"1.A", ".A\xC3\xA9\xF0\x9F\x98\x80"});
  expect_texts(*of_regex("(?P<year>\\d{4})-(?<m>\\w\\w)??"), {"2024-", "2024-ab"}, {"2024-a"});
}

// Every class of a range of characters, against the bytes of each character.
TEST(Regex, RangesOfCharactersAreExact) {
  const auto utf8 = [](uint32_t c) {
    std::string out;
    Grammar g;
    const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n == 1) return std::string(1, static_cast<char>(c));
    constexpr unsigned kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    out += static_cast<char>(kLead[n] | (c >> (6 * (n - 1))));
    for (int i = n - 2; i >= 0; --i) out += static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F));
    return out;
  };
  for (const auto& [first, last] : std::vector<std::pair<uint32_t, uint32_t>>{{0x41, 0x7F},
                                                                              {0x7E, 0x81},
                                                                              {0x7FF, 0x801},
                                                                              {0x3FF, 0x1234},
                                                                              {0xD7F0, 0xE010},
                                                                              {0xFFFE, 0x10001},
                                                                              {0x10FFF0, 0x10FFFF},
                                                                              {0x20, 0x10FFFF},
                                                                              {0x12345, 0x23456}}) {
    Grammar g;
    const auto made =
        TokenGrammar::make(g, g.rule_of(g.chars(CharSet({{first, last}}))), vocabulary());
    ASSERT_TRUE(made.ok());
    for (uint32_t near : {first, last, 0x800u, 0xD800u, 0xDFFFu, 0xE000u, 0x10000u, 0x40000u}) {
      for (uint32_t c = near > 70 ? near - 70 : 0; c < near + 70 && c <= 0x10FFFF; ++c) {
        const bool in = c >= first && c <= last && (c < 0xD800 || c > 0xDFFF);
        ASSERT_EQ((*made)->matches(utf8(c)), in) << first << " " << last << " " << c;
      }
    }
  }
}

// The same answers as the standard library's engine over all short texts of a small alphabet.
TEST(Regex, AgreesWithTheStandardLibrary) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 6; ++i) {
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  }
  for (const char* pattern :
       {"(a|ab)(c|bc)*", "(a*b)*", "((a|b)*c){2}", "a{0,2}b{1,}c{3}|", "(a?){4}b", "(a|b|c){2,4}",
        "((a{2}){2}|b)+", "([ab]c?){1,3}", "(()|a)+c", "a(b(c(a)?)?)?", "(a+)+b"}) {
    const auto mine = of_regex(pattern);
    const std::regex theirs(pattern);
    for (const std::string& text : texts) {
      ASSERT_EQ(mine->matches(text), std::regex_match(text, theirs)) << pattern << " " << text;
    }
  }
}

TEST(Regex, RefusesByName) {
  for (const auto& [pattern, word] : std::vector<std::pair<std::string, std::string>>{
           {"(", "closing"},          {")", "opening"},          {"a**", "repeat"},
           {"*a", "repeat"},          {"a{2,1}", "ends before"}, {"[z-a]", "ends before"},
           {"\\1", "references"},     {"(?=a)", "ahead"},        {"(?<!a)b", "ahead"},
           {"\\bword", "boundaries"}, {"\\p{L}", "\\p"},         {"a$b", "end"},
           {"a^b", "ends"},           {"[a", "closing"},         {"\\", "lone"},
           {"a{999999}", "counted"},  {"\\xZZ", "digits"},       {"(?i)a", "flags"},
           {"a++", "possessive"},     {"\\ud800", "character"}}) {
    const auto made = try_regex(pattern);
    ASSERT_FALSE(made.ok()) << pattern;
    EXPECT_NE(made.status().message().find(word), std::string::npos)
        << pattern << ": " << made.status().message();
  }
}

TEST(Regex, HostileOnesEndQuickly) {
  const auto repeat = [](std::string_view s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  EXPECT_TRUE(try_regex(repeat("(", 100) + "a" + repeat(")", 100)).ok());
  EXPECT_FALSE(try_regex(repeat("(", 30000)).ok());
  EXPECT_FALSE(try_regex(repeat("(", 101) + "a" + repeat(")", 101)).ok());
  EXPECT_TRUE(try_regex("(((a{1000}){1000}){1000}){10}").ok());
  EXPECT_FALSE(try_regex("[]").ok());  // nothing matches
  (void)try_regex("((((a?){1000}){1000}){1000}){1000}b");
  (void)try_regex("(a|a|a|a|a){99999}");
  (void)try_regex(repeat("[^a]{99999}", 5000));
  (void)try_regex(repeat("(a*)*", 5000));
  (void)try_regex("(.*.*.*.*.*.*a){1000}");
}

}  // namespace
}  // namespace pagefold::grammar::test
