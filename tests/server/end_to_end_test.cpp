// Sockets, routes and a real engine; only the model is a fake one (random bytes as answers, so the
// texts are full of invalid UTF-8: fault D14 on every request).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "fakes.h"
#include "server/http_server.h"
#include "server/openai_api.h"
#include "socket_client.h"
#include "support/fake_model.h"

namespace pagefold {
namespace {

using test::Answer;
using test::ByteTokenizer;
using test::SocketClient;

class EndToEnd : public ::testing::Test {
 protected:
  EndToEnd() : model_(ByteTokenizer::kVocab) {
    EngineConfig config;
    config.max_model_len = 2048;
    config.kv_cache_memory_bytes = 64 << 20;
    engine_ = *EngineCore::start(model_, config);
    port_ = std::make_unique<EngineCorePort>(*engine_);
    chat_ = std::make_unique<ChatTemplate>(*ChatTemplate::parse(test::kChatMl));
    api_ = std::make_unique<OpenAiApi>(test::byte_model(tokenizer_, chat_.get(), 2048), *port_,
                                       ApiOptions{});
    server_ = *HttpServer::bind({.port = 0}, *api_);
    thread_ = std::thread([this] { server_->run(); });
  }
  ~EndToEnd() override {
    server_.reset();
    thread_.join();
  }
  SocketClient client() { return SocketClient(server_->port()); }
  bool until_idle() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      const EngineMetrics m = engine_->metrics();
      if (m.running == 0 && m.waiting == 0 && m.blocks_used == 0) return true;
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
  }
  static std::string body(int max_tokens, bool stream, int seed = 1) {
    return R"({"prompt":"hello","ignore_eos":true,"max_tokens":)" + std::to_string(max_tokens) +
           R"(,"seed":)" + std::to_string(seed) + R"(,"stream":)" + (stream ? "true" : "false") +
           "}";
  }
  static std::string text_of(const Answer& a) {
    return Json::parse(a.body)["choices"][0]["text"].get<std::string>();
  }

  testing::FakeModel model_;
  ByteTokenizer tokenizer_;
  std::unique_ptr<EngineCore> engine_;
  std::unique_ptr<EngineCorePort> port_;
  std::unique_ptr<ChatTemplate> chat_;
  std::unique_ptr<OpenAiApi> api_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(EndToEnd, PlainAndStreamedTextsAreEqual) {
  auto c = client();
  const Answer plain = c.post("/v1/completions", body(200, false));
  ASSERT_EQ(plain.status, 200) << plain.body;
  const Answer stream = c.post("/v1/completions", body(200, true));
  test::RecordingResponder events;
  events.body = stream.body;
  std::string text;
  for (const Json& e : events.events()) text += e["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, text_of(plain));
  EXPECT_EQ(Json::parse(plain.body)["usage"]["completion_tokens"], 200);
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(until_idle());
}

// D22: the generation ends with its client, streaming or not.
TEST_F(EndToEnd, LeavingFreesTheBlocks) {
  for (const bool stream : {true, false}) {
    // From the 20th step on the model waits until the server has seen the client leave.
    std::atomic<bool> left{false};
    const int64_t first = model_.steps;
    model_.before_forward = [&](const StepBatch&) {
      while (model_.steps - first > 20 && !left) std::this_thread::yield();
    };
    const auto aborted = engine_->metrics().finished_abort;
    auto c = client();
    c.send(SocketClient::post_text("/v1/completions", body(2000, stream)));
    while (engine_->metrics().running == 0) std::this_thread::yield();
    if (stream) {
      EXPECT_FALSE(c.read_until("data: ").empty());
    }
    c.close();
    while (server_->connections() > 0) std::this_thread::yield();
    const uint64_t tokens = engine_->metrics().generation_tokens;
    left = true;
    EXPECT_TRUE(until_idle());
    EXPECT_EQ(engine_->metrics().finished_abort, aborted + 1);
    EXPECT_LE(engine_->metrics().generation_tokens, tokens + 2);
    model_.before_forward = nullptr;
  }
}

TEST_F(EndToEnd, ManyClientsGetTheirSoloText) {
  constexpr int kClients = 16;
  std::vector<std::string> solo;
  auto c = client();
  for (int i = 0; i < kClients; ++i)
    solo.push_back(text_of(c.post("/v1/completions", body(60, false, i))));
  std::vector<std::string> together(kClients);
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      auto own = client();
      together[i] = text_of(own.post("/v1/completions", body(60, false, i)));
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(together, solo);
  EXPECT_TRUE(until_idle());
}

// D23 with answers in flight: nobody reads them, everybody else is served.
TEST_F(EndToEnd, IdleStreamsDoNotHoldUpOthers) {
  std::vector<SocketClient> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(client());
    idle.back().send(SocketClient::post_text("/v1/completions", body(20, true, i)));
  }
  EXPECT_EQ(client().get("/health").status, 200);
  EXPECT_TRUE(until_idle());
  // The best of five: the machine that runs the tests may be busy with other things.
  auto best = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(client().get("/health").status, 200);
    best = std::min(best, std::chrono::steady_clock::now() - begin);
  }
  EXPECT_LT(best, std::chrono::milliseconds(100));
  EXPECT_EQ(client().post("/v1/completions", body(5, false)).status, 200);
}

TEST_F(EndToEnd, BadRequestsDisturbNobody) {
  auto busy = client();
  busy.send(SocketClient::post_text("/v1/completions", body(300, false)));
  auto c = client();
  for (const char* bad : {"{:", "[]", R"({"prompt":"x","stream":"true"})",
                          R"({"prompt":"x","kv":{"policy":"nonsense"}})", R"({"prompt":7})"}) {
    const Answer a = c.post("/v1/completions", bad);
    EXPECT_EQ(a.status, 400) << bad << a.body;
  }
  EXPECT_EQ(busy.read_answer().status, 200);
}

}  // namespace
}  // namespace pagefold
