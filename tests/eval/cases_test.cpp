#include "eval/cases.h"

#include <gtest/gtest.h>

#include <set>

namespace pagefold::eval {
namespace {

int64_t words(std::string_view text) {
  int64_t n = 0;
  for (const char c : text) n += c == ' ' || c == '\n' ? 1 : 0;
  return n + 1;
}

TEST(Needle, HidesWhatItAsksFor) {
  const auto cases = needle_cases(1, 6, {256, 512}, 1, words);
  ASSERT_EQ(cases.size(), 6u);
  EXPECT_EQ(cases[0].group, "256 tokens, start");
  EXPECT_EQ(cases[3].group, "512 tokens, middle");
  EXPECT_EQ(cases[5].group, "512 tokens, end");
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    const std::string needle = "is " + c.expected[0].get<std::string>() + ".";
    const size_t at = c.question.find(needle);
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(c.question.find(needle, at + 1), std::string::npos);
    const double depth = static_cast<double>(at) / static_cast<double>(c.question.size());
    EXPECT_NEAR(depth, 0.1 + 0.4 * static_cast<double>(i / 2), 0.1) << c.group;
    const int64_t want = i % 2 == 0 ? 256 : 512;
    EXPECT_NEAR(static_cast<double>(words(c.question)), static_cast<double>(want), 60) << c.group;
  }
  EXPECT_EQ(needle_cases(1, 6, {256, 512}, 1, words)[4].question, cases[4].question);
  EXPECT_NE(needle_cases(2, 6, {256, 512}, 1, words)[4].question, cases[4].question);
  const auto three = needle_cases(1, 1, {512}, 3, words);
  EXPECT_EQ(three[0].expected.size(), 3u);
  for (const Json& e : three[0].expected)
    EXPECT_NE(three[0].question.find(e.get<std::string>()), std::string::npos);
}

TEST(Passkey, LiesAtEveryDepth) {
  const auto cases = passkey_cases(1, 4, {400}, words);
  double last = 0;
  for (const Case& c : cases) {
    const auto at = static_cast<double>(c.question.find(c.expected[0].get<std::string>()));
    EXPECT_GT(at, last);
    last = at;
  }
}

TEST(Numbers, StandAlone) {
  const Json expected = {"12345", "678"};
  EXPECT_EQ(grade_numbers(expected, "They are 12345 and 678.").score, 1);
  EXPECT_EQ(grade_numbers(expected, "12345").score, 0.5);
  EXPECT_EQ(grade_numbers(expected, "123456 and 1678").score, 0);
  EXPECT_EQ(grade_numbers(expected, "1123456 12345").score, 0.5);
}

// 0 - 1 - 3, 0 - 2: by hand.
const Graph kFork{4, {{0, 2}, {1, 0}, {3, 1}}};

TEST(StateQuery, FollowsTheSearch) {
  const auto at = [](int64_t steps) { return search(kFork, 0, steps); };
  EXPECT_EQ(at(0).stack, (std::vector<int>{0}));
  EXPECT_EQ(at(1).stack, (std::vector<int>{0, 1}));
  EXPECT_EQ(at(2).stack, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(at(2).current, 3);
  EXPECT_EQ(at(4).stack, (std::vector<int>{0}));
  EXPECT_EQ(at(4).visited, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(at(5).stack, (std::vector<int>{0, 2}));
  EXPECT_EQ(at(7).current, -1);
  EXPECT_EQ(at(99).visited, (std::vector<int>{0, 1, 2, 3}));
}

TEST(StateQuery, GradesStrictly) {
  const Json expected = {{"current_node", 3}, {"stack", {0, 1, 3}}, {"visited_nodes", {0, 1, 3}}};
  const std::string object =
      R"({"current_node": 3, "stack": [0, 1, 3], "visited_nodes": [3, 0, 1]})";
  EXPECT_EQ(grade_state(expected, object).score, 1);
  EXPECT_EQ(grade_state(expected, "Analysis: {x}\nAnswer:\n```json\n" + object + "\n```").score, 1);
  EXPECT_EQ(grade_state(expected, "Analysis: {1, 2}\nAnswer: " + object + " done").score, 1);
  const Grade stack = grade_state(
      expected, R"({"current_node": 3, "stack": [0, 3], "visited_nodes": [0, 1, 2, 3]})");
  EXPECT_EQ(stack.score, 0);
  EXPECT_TRUE(stack.parsed);
  EXPECT_EQ(stack.detail["node"], 1);
  EXPECT_EQ(stack.detail["stack"], 0);
  EXPECT_NEAR(stack.detail["visited_f1"].get<double>(), 6.0 / 7, 1e-12);
  for (const char* bad : {"", "the node is 3", "{", R"({"current_node": 3})",
                          R"({"current_node": 3, "stack": "0", "visited_nodes": [0.5]})"}) {
    EXPECT_FALSE(grade_state(expected, bad).parsed) << bad;
    EXPECT_EQ(grade_state(expected, bad).score, 0);
  }
}

TEST(StateQuery, MakesCasesThatHoldTogether) {
  const auto cases = state_cases(3, 30);
  ASSERT_EQ(cases.size(), 30u);
  std::set<std::string> questions;
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(cases[i].group, fmt::format("{} steps", i + 1));
    EXPECT_TRUE(cases[i].expected["current_node"].is_number());
    EXPECT_EQ(cases[i].expected["stack"].back(), cases[i].expected["current_node"]);
    EXPECT_EQ(grade_state(cases[i].expected, dump_json(cases[i].expected)).score, 1);
    questions.insert(cases[i].question);
  }
  EXPECT_EQ(questions.size(), 30u);
  EXPECT_EQ(state_cases(3, 30)[7].question, cases[7].question);
}

TEST(StateQuery, ReadsCasesAndChecksThem) {
  Json one = {
      {"graph", {{"nodes", {0, 1, 2, 3}}, {"edges", {{0, 2}, {1, 0}, {3, 1}}}}},
      {"start_node", 0},
      {"steps", 2},
      {"answer", {{"current_node", 3}, {"stack", {0, 1, 3}}, {"visited_nodes", {0, 1, 3}}}}};
  const auto read = [](const Json& j) { return read_state_cases(dump_json(Json::array({j})), 10); };
  ASSERT_TRUE(read(one).ok());
  EXPECT_EQ((*read(one))[0].expected["current_node"], 3);
  Json wrong = one;
  wrong["answer"]["current_node"] = 2;
  EXPECT_FALSE(read(wrong).ok());
  wrong = one;
  wrong["graph"]["edges"].push_back({0, 99});
  EXPECT_FALSE(read(wrong).ok());
  wrong = one;
  wrong["steps"] = -1;
  EXPECT_FALSE(read(wrong).ok());
  for (const char* bad : {"", "[]", "{}", "[1]", "[{}]", R"([{"graph":1,"steps":1,"answer":{}}])"})
    EXPECT_FALSE(read_state_cases(bad, 10).ok()) << bad;
}

TEST(Qa, FindsTheFinalNumber) {
  EXPECT_EQ(final_number("2 + 2 = 4\n#### 18"), 18);
  EXPECT_EQ(final_number("so $1,234.50 in all."), 1234.5);
  EXPECT_EQ(final_number("minus: -7"), -7);
  EXPECT_EQ(final_number("5-3 is 2."), 2);
  EXPECT_EQ(final_number("#### none, but 3"), 3);
  EXPECT_EQ(final_number("nothing"), std::nullopt);
}

TEST(Qa, ReadsLinesAndKeepsExamplesApart) {
  std::string text;
  for (int i = 0; i < 4; ++i)
    text += fmt::format("{{\"question\": \"Q{}?\", \"answer\": \"A\\n#### {}\"}}\n", i, i * 10);
  const auto cases = read_qa_cases(text, 10, 1);
  ASSERT_TRUE(cases.ok());
  ASSERT_EQ(cases->size(), 3u);
  EXPECT_NE((*cases)[1].question.find("Q3?"), std::string::npos);  // the example
  EXPECT_NE((*cases)[1].question.find("Question: Q1?\nAnswer:"), std::string::npos);
  EXPECT_EQ(grade_qa((*cases)[1].expected, "it is 10").score, 1);
  EXPECT_EQ(grade_qa((*cases)[1].expected, "it is 11").score, 0);
  EXPECT_FALSE(grade_qa((*cases)[1].expected, "no idea").parsed);
  EXPECT_FALSE(read_qa_cases(text, 10, 4).ok());
  EXPECT_FALSE(read_qa_cases("{\"question\": 1}\n", 1, 0).ok());
}

}  // namespace
}  // namespace pagefold::eval
