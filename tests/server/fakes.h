// An engine whose tokens the test says, and a responder that records.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/engine_port.h"
#include "server/http.h"
#include "server/openai_request.h"
#include "support/byte_tokenizer.h"

namespace pagefold::test {

inline ApiModel byte_model(const Tokenizer& tokenizer, const ChatTemplate* chat = nullptr,
                           int64_t max_model_len = 4096) {
  ApiModel m;
  m.tokenizer = &tokenizer;
  m.chat_template = chat;
  m.special = SpecialPieces(tokenizer);
  m.names = {"tiny", "alias"};
  m.eos_token_ids = {ByteTokenizer::kEnd};
  m.max_model_len = max_model_len;
  m.grammars = std::make_shared<GrammarStore>(tokenizer, tokenizer.vocab_size(), m.eos_token_ids);
  return m;
}

class ScriptedEngine final : public EnginePort {
 public:
  struct Job {
    Request request;
    std::shared_ptr<Generation> generation;
  };
  Result<std::shared_ptr<Generation>> submit(Request request) override {
    if (jobs.size() >= capacity) return exhausted("the queue is full");
    jobs.push_back({std::move(request), std::make_shared<Generation>()});
    return jobs.back().generation;
  }
  EngineMetrics metrics() const override { return {}; }
  const EngineConfig& config() const override { return config_; }
  int64_t kv_capacity_tokens() const override { return 0; }
  void watch(std::function<void(std::shared_ptr<const EngineState>)> callback) override {
    callback(std::make_shared<EngineState>(state));
  }

  // One token for every byte of text.
  void say(size_t job, std::string_view text, bool scores = false) {
    for (const char c : text) token(job, static_cast<unsigned char>(c), scores);
  }
  void token(size_t job, int32_t id, bool scores = false) {
    TokenEvent event{.token = id, .logprobs = {}};
    if (scores) event.logprobs = {{id, -0.5f}, {id, -0.5f}, {'z', -1.25f}};
    jobs[job].generation->push(std::move(event));
    jobs[job].generation->notify();
  }
  void finish(size_t job, FinishReason reason, std::string error = {}) {
    GenerationResult r;
    r.reason = reason;
    r.error = std::move(error);
    r.kv_slots = 40;
    r.kv_blocks = 4;
    r.kv_bytes = 1024;
    r.kv_peak_bytes = 2048;
    r.kv = {.kept_slots = 40, .kept_tokens = 10, .blocks = 4, .bytes = 1024, .peak_bytes = 2048};
    jobs[job].generation->finish(std::move(r));
    jobs[job].generation->notify();
  }
  bool cancelled(size_t job) const { return jobs[job].generation->cancel_requested(); }

  std::deque<Job> jobs;
  size_t capacity = 1000;
  EngineState state;

 private:
  EngineConfig config_;
};

class RecordingResponder final : public Responder {
 public:
  void add_header(std::string_view name, std::string_view value) override {
    added_.emplace_back(name, value);
  }
  void send(int s, HttpHeaders h, std::string b) override {
    status = s;
    headers = std::move(h);
    headers.insert(headers.end(), added_.begin(), added_.end());
    body = std::move(b);
    finish();
  }
  void begin_stream(int s, HttpHeaders h) override {
    status = s;
    headers = std::move(h);
    headers.insert(headers.end(), added_.begin(), added_.end());
    streaming = true;
  }
  void write(std::string_view chunk) override {
    body += chunk;
    queued += chunk.size();
  }
  void end() override { finish(); }
  size_t queued_bytes() const override { return queued; }
  size_t max_queued_bytes() const override { return limit; }
  void on_writable(std::function<void()> f) override { writable_ = std::move(f); }
  void on_closed(std::function<void()> f) override { closed_ = std::move(f); }
  void on_stopping(std::function<void()> f) override { stopping_ = std::move(f); }
  void post(std::function<void()> work) override {
    std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }

  // Runs what was posted.
  void run() {
    for (;;) {
      std::function<void()> work;
      {
        std::lock_guard lock(mutex_);
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }
  void leave() {
    if (auto f = std::exchange(closed_, nullptr)) f();
    writable_ = nullptr;
    stopping_ = nullptr;
  }
  void stop() {
    if (auto f = std::exchange(stopping_, nullptr)) f();
  }
  void drain() {
    queued = 0;
    if (auto f = writable_) f();
  }
  std::string header(std::string_view name) const {
    for (const auto& [k, v] : headers) {
      if (k == name) return v;
    }
    return {};
  }
  Json json() const { return Json::parse(body); }
  // The JSON of each event; "[DONE]" is left out and counted.
  std::vector<Json> events() const {
    std::vector<Json> out;
    size_t at = 0;
    while (at < body.size()) {
      const size_t end = body.find("\n\n", at);
      const std::string line = body.substr(at, end - at);
      at = end + 2;
      if (line != "data: [DONE]") out.push_back(Json::parse(line.substr(6)));
    }
    return out;
  }

  int status = 0;
  HttpHeaders headers;
  std::string body;
  bool streaming = false, ended = false;
  size_t queued = 0, limit = 1 << 20;

 private:
  void finish() {
    ended = true;
    writable_ = nullptr;
    closed_ = nullptr;
    stopping_ = nullptr;
  }
  HttpHeaders added_;
  std::function<void()> writable_, closed_, stopping_;
  std::mutex mutex_;
  std::deque<std::function<void()>> work_;
};

}  // namespace pagefold::test
