#include "server/batch.h"

#include <gtest/gtest.h>

#include <deque>
#include <sstream>

#include "base/json.h"

namespace pagefold {
namespace {

// Answers each request with its body when the test's rules say so.
class RuledHandler final : public HttpHandler {
 public:
  void handle(HttpRequest request, std::shared_ptr<Responder> responder) override {
    ++asked;
    if (static_cast<int>(waiting_.size()) >= room) {
      ++refused;
      return responder->send(429, {}, R"({"error":{"message":"full"}})");
    }
    waiting_.push_back({request.body, responder});
    // The newest is answered first, and only when the room is used up or nothing else may come.
    responder->post([this] {
      if (waiting_.empty()) return;
      const auto [body, to] = waiting_.back();
      waiting_.pop_back();
      to->send(body.find("bad") == std::string::npos ? 200 : 400, {}, body);
    });
  }
  std::string error_body(int, std::string_view) const override { return {}; }

  int room = 100, asked = 0, refused = 0;

 private:
  std::deque<std::pair<std::string, std::shared_ptr<Responder>>> waiting_;
};

std::string line(const std::string& id, const std::string& body = "{}") {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":)" + body +
         "}\n";
}

std::vector<Json> answers(const std::string& text) {
  std::vector<Json> out;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one);) out.push_back(Json::parse(one));
  return out;
}

TEST(Batch, AnswersComeInTheOrderOfTheLines) {
  RuledHandler handler;
  std::string text;
  for (int i = 0; i < 50; ++i) text += line(std::to_string(i), "{\"x\":" + std::to_string(i) + "}");
  std::istringstream in(text);
  std::ostringstream out;
  const auto counts = run_batch(handler, in, out, {.in_flight = 7});
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->requests, 50);
  EXPECT_EQ(counts->completed, 50);
  const auto got = answers(out.str());
  ASSERT_EQ(got.size(), 50u);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(got[static_cast<size_t>(i)]["custom_id"], std::to_string(i));
    EXPECT_EQ(got[static_cast<size_t>(i)]["response"]["body"]["x"], i);
  }
}

TEST(Batch, AFullQueueIsAskedAgain) {
  RuledHandler handler;
  handler.room = 2;
  std::string text;
  for (int i = 0; i < 20; ++i) text += line(std::to_string(i));
  std::istringstream in(text);
  std::ostringstream out;
  const auto counts = run_batch(handler, in, out, {.in_flight = 8});
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->completed, 20);
  EXPECT_GT(handler.refused, 0);
  EXPECT_LT(handler.asked, 60);
}

TEST(Batch, WhatIsRefusedForGoodIsAnAnswer) {
  RuledHandler handler;
  handler.room = 0;
  std::istringstream in(line("a") + line("b"));
  std::ostringstream out;
  const auto counts = run_batch(handler, in, out, {.in_flight = 8});
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->failed, 2);
  EXPECT_EQ(answers(out.str())[0]["error"]["message"], "full");
  EXPECT_EQ(answers(out.str())[1]["response"]["status_code"], 429);
}

TEST(Batch, BadLinesAreAnsweredAndStopNobody) {
  RuledHandler handler;
  std::istringstream in("\n  \r\n{\n" + line("a", "[]") + line("b") + line("b") +
                        line("c", R"({"stream":true})") + line("d", R"({"bad":1})") +
                        std::string(300, 'x') + "\n" + line("e"));
  std::ostringstream out;
  const auto counts = run_batch(handler, in, out, {.in_flight = 2, .max_line_bytes = 200});
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->requests, 8);
  EXPECT_EQ(counts->completed, 2);
  const auto got = answers(out.str());
  ASSERT_EQ(got.size(), 8u);
  EXPECT_TRUE(got[0]["custom_id"].is_null() && got[0]["response"].is_null());
  EXPECT_EQ(got[1]["error"]["message"], "body: must be an object");
  EXPECT_TRUE(got[2]["error"].is_null());
  EXPECT_EQ(got[3]["error"]["message"], "custom_id: an earlier line has the same");
  EXPECT_EQ(got[5]["response"]["status_code"], 400);
  EXPECT_EQ(got[5]["error"]["code"], "400");
  EXPECT_EQ(got[6]["error"]["code"], "invalid_line");
  EXPECT_EQ(got[7]["custom_id"], "e");
}

TEST(Batch, AnOutputThatTakesNoMoreIsAnError) {
  RuledHandler handler;
  std::istringstream in(line("a"));
  std::ostream out(nullptr);
  EXPECT_FALSE(run_batch(handler, in, out, {}).ok());
}

}  // namespace
}  // namespace pagefold
