// Helpers of the engine's tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/fake_model.h"

namespace pagefold::testing {

// A config whose pool holds `blocks` blocks of the fake model.
inline EngineConfig small_config(uint64_t blocks = 4096, int64_t max_model_len = 256) {
  EngineConfig c;
  c.max_model_len = max_model_len;
  c.max_num_seqs = 8;
  c.max_num_batched_tokens = 64;
  c.kv_cache_memory_bytes = blocks * 4 * 16 * 8;
  return c;
}

inline std::unique_ptr<EngineCore> start_engine(FakeModel& model, const EngineConfig& config) {
  auto engine = EngineCore::start(model, config);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

// `n` token ids that depend on `seed`.
inline std::vector<int32_t> prompt_of(int64_t n, uint64_t seed, int64_t vocab = 64) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(
        static_cast<int32_t>(mix(seed, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

inline Request greedy(std::vector<int32_t> tokens, int64_t max_tokens) {
  Request r;
  r.id = "r";
  r.tokens = std::move(tokens);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = max_tokens;
  return r;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<TokenEvent> events;
  GenerationResult result;
};

// Reads a generation to its end.
inline Answer drain(Generation& g) {
  Answer a;
  std::vector<TokenEvent> events;
  for (g.wait(); g.poll(events); g.wait()) {
    for (TokenEvent& e : events) {
      a.tokens.push_back(e.token);
      a.events.push_back(std::move(e));
    }
  }
  a.result = g.result();
  return a;
}

inline Answer answer(EngineCore& engine, Request request) {
  auto g = engine.submit(std::move(request));
  EXPECT_TRUE(g.ok()) << g.status();
  return g.ok() ? drain(**g) : Answer{};
}

}  // namespace pagefold::testing
