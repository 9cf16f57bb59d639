#include <gtest/gtest.h>

#include "server/fakes.h"
#include "server/openai_api.h"

namespace pagefold::test {
namespace {

struct Served {
  explicit Served(std::string key = {}) : api(byte_model(tokenizer), engine, {.api_key = key}) {}
  std::shared_ptr<RecordingResponder> ask(std::string target, HttpHeaders headers = {},
                                          std::string method = "GET") {
    auto r = std::make_shared<RecordingResponder>();
    api.handle({.method = std::move(method),
                .target = std::move(target),
                .headers = std::move(headers),
                .body = {}},
               r);
    r->run();
    return r;
  }
  ByteTokenizer tokenizer;
  ScriptedEngine engine;
  OpenAiApi api;
};

TEST(Dashboard, PagesAreOpenAndLoadNothingFromElsewhere) {
  Served s("secret");
  const auto page = s.ask("/");
  EXPECT_EQ(page->status, 200);
  EXPECT_TRUE(page->header("Content-Type").starts_with("text/html"));
  EXPECT_TRUE(page->header("Content-Security-Policy").starts_with("default-src 'none'"));
  EXPECT_EQ(page->header("X-Content-Type-Options"), "nosniff");
  for (const char* name : {"main.js", "style.css", "icon.svg"}) {
    EXPECT_EQ(s.ask(std::string("/ui/") + name)->status, 200) << name;
    EXPECT_NE(page->body.find(std::string("\"/ui/") + name), std::string::npos) << name;
  }
  EXPECT_EQ(page->body.find("http"), std::string::npos) << "an address of another server";
  EXPECT_EQ(page->body.find("<script>"), std::string::npos);
  EXPECT_EQ(page->body.find("style="), std::string::npos);
}

TEST(Dashboard, RefusesWhatIsNotThere) {
  Served s;
  EXPECT_EQ(s.ask("/ui/nothing.js")->status, 404);
  EXPECT_EQ(s.ask("/ui/../main.js")->status, 404);
  EXPECT_EQ(s.ask("/ui/")->status, 404);
  EXPECT_EQ(s.ask("/", {}, "POST")->status, 405);
  EXPECT_EQ(s.ask("/", {}, "OPTIONS")->header("Allow"), "GET, HEAD, OPTIONS");
}

TEST(Dashboard, FiguresNeedTheKey) {
  Served s("secret");
  EXPECT_EQ(s.ask("/api/state")->status, 401);
  EXPECT_EQ(s.ask("/api/policies")->status, 401);
  EXPECT_EQ(s.ask("/api/state", {{"Authorization", "Bearer secret"}})->status, 200);
}

TEST(Dashboard, StateIsJsonWhateverTheNames) {
  Served s;
  s.engine.state.serial = 7;
  s.engine.state.metrics.kv_block_bytes = 1024;
  s.engine.state.metrics.running_blocks = 6;
  s.engine.state.metrics.held_slots = 48;
  s.engine.state.sequences.push_back({.id = "</script>\"\xff",
                                      .policy = "snapkv",
                                      .phase = SequencePhase::decode,
                                      .budget = 64,
                                      .kept_slots = 48,
                                      .blocks = 6,
                                      .full_blocks = 9});
  s.engine.state.cells = {{2, 100}, {2, 100}, {2, 50}, {0, 0}, {1, 100}};
  const Json j = s.ask("/api/state")->json();
  EXPECT_EQ(j["serial"], 7);
  EXPECT_EQ(j["sequences"][0]["id"], "</script>\"\xEF\xBF\xBD");
  EXPECT_EQ(j["sequences"][0]["phase"], "decode");
  EXPECT_EQ(j["map"]["cells"], Json::parse("[2,100,2, 2,50,1, 0,0,1, 1,100,1]"));
  EXPECT_EQ(j["map"]["n"], 5);
  EXPECT_EQ(j["memory"]["physical_bytes"], 6 * 1024);
  EXPECT_EQ(j["memory"]["logical_bytes"], 3 * 1024);  // 48 of 96 slots
  EXPECT_EQ(j["memory"]["full_bytes"], 9 * 1024);
  EXPECT_EQ(j["memory"]["filled"], 0.5);
}

TEST(Dashboard, PoliciesAreThoseThatAreServed) {
  Served s;
  const Json j = s.ask("/api/policies")->json();
  std::vector<std::string> names;
  for (const Json& p : j["policies"]) names.push_back(p["name"]);
  EXPECT_NE(std::find(names.begin(), names.end(), "triattention"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "adakv"), names.end());
  EXPECT_EQ(std::find(names.begin(), names.end(), "oracle"), names.end()) << "it needs the future";
  EXPECT_EQ(j["default"], "full");
}

}  // namespace
}  // namespace pagefold::test
