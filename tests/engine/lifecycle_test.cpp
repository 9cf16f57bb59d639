// How requests come and go: the queue, cancelling, ends, the counters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <semaphore>
#include <thread>

#include "engine/engine_test_util.h"
#include "engine/tiny_engine.h"

namespace pagefold {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// Holds the engine inside a forward pass until it is let go, so that tests see states that would
// otherwise be gone at once.
struct Gate {
  explicit Gate(FakeModel& model) {
    model.before_forward = [this](const StepBatch&) {
      entered.release();
      go.acquire();
    };
  }
  void let_all_go() { go.release(1 << 20); }
  std::counting_semaphore<> entered{0}, go{0};
};

TEST(Lifecycle, EndAndStopTokens) {
  FakeModel model;
  auto engine = start_engine(model, small_config());
  const std::vector<int32_t> prompt = prompt_of(9, 3);
  const std::vector<int32_t> free_run = model.expected_greedy(prompt, 40);
  const int32_t end = free_run[7];
  const auto first_at = std::find(free_run.begin(), free_run.end(), end) - free_run.begin();

  Request r = greedy(prompt, 40);
  r.eos_token_ids = {end};
  Answer a = answer(*engine, r);
  EXPECT_EQ(a.result.reason, FinishReason::stop);
  EXPECT_EQ(a.result.stop_token, end);
  EXPECT_EQ(a.tokens, model.expected_greedy(prompt, 40, {end}));
  EXPECT_EQ(static_cast<int64_t>(a.tokens.size()), first_at + 1)
      << "the end token is the last event";

  r.sampling.ignore_eos = true;
  a = answer(*engine, r);
  EXPECT_EQ(a.tokens, free_run);
  EXPECT_EQ(a.result.stop_token, -1);

  r.sampling.stop_token_ids = {end};  // still counts
  a = answer(*engine, r);
  EXPECT_EQ(a.result.reason, FinishReason::stop);
  EXPECT_EQ(static_cast<int64_t>(a.tokens.size()), first_at + 1);

  r.sampling.min_tokens = 20;
  a = answer(*engine, r);
  EXPECT_GE(a.tokens.size(), 20u);
  EXPECT_EQ(std::count(a.tokens.begin(), a.tokens.begin() + 20, end), 0);
}

// D04: no max_tokens and a model that never stops: the context is the end.
TEST(Lifecycle, TheContextEndsAGenerationWithoutMaxTokens) {
  FakeModel model;
  auto engine = start_engine(model, small_config(4096, 512));
  Request r = greedy(prompt_of(500, 1), 0);
  r.sampling.max_tokens.reset();
  r.sampling.ignore_eos = true;
  r.eos_token_ids = {0, 1, 2, 3, 4, 5, 6, 7};
  const Answer a = answer(*engine, r);
  EXPECT_EQ(a.result.reason, FinishReason::length);
  EXPECT_EQ(a.result.prompt_tokens + a.result.completion_tokens, 512);
}

TEST(Lifecycle, AFullQueueRefuses) {
  FakeModel model;
  Gate gate(model);
  EngineConfig config = small_config();
  config.max_num_seqs = 1;
  config.max_queued_requests = 3;
  auto engine = start_engine(model, config);
  std::vector<std::shared_ptr<Generation>> accepted = {*engine->submit(greedy({1, 2}, 4))};
  gate.entered.acquire();  // the first one runs, the line is empty
  for (int i = 0; i < 3; ++i) accepted.push_back(*engine->submit(greedy({1, 2}, 4)));
  EXPECT_EQ(engine->metrics().waiting, 3);
  const auto refused = engine->submit(greedy({1, 2}, 4));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(message_of(refused.status()), HasSubstr("3 requests are waiting"));
  gate.let_all_go();
  for (const auto& g : accepted) EXPECT_EQ(drain(*g).tokens.size(), 4u);
  EXPECT_EQ(engine->metrics().waiting, 0);
  EXPECT_TRUE(engine->submit(greedy({1, 2}, 4)).ok());
}

TEST(Lifecycle, CancelIsHonouredBeforeTheNextStep) {
  FakeModel model;
  Gate gate(model);
  EngineConfig config = small_config();
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 16;
  auto engine = start_engine(model, config);
  auto decoding = *engine->submit(greedy({1, 2}, 100));
  gate.entered.acquire();
  gate.go.release();
  gate.entered.acquire();  // second step: `decoding` has its first token
  auto prefilling = *engine->submit(greedy(prompt_of(200, 1), 5));
  auto waiting = *engine->submit(greedy({3}, 5));
  gate.go.release();
  gate.entered.acquire();  // third step: the first chunk of `prefilling` is under way
  EXPECT_EQ(model.steps, 2);
  for (const auto& g : {decoding, prefilling, waiting}) g->cancel();
  gate.go.release();  // ends the third step; the fourth never comes
  for (const auto& g : {decoding, prefilling, waiting}) {
    const Answer a = drain(*g);
    EXPECT_EQ(a.result.reason, FinishReason::cancelled);
  }
  EXPECT_EQ(model.steps, 3);
  const EngineMetrics m = engine->metrics();
  EXPECT_EQ(m.blocks_used, 0);
  EXPECT_EQ(m.finished_abort, 3u);
  EXPECT_EQ(m.waiting, 0);
  gate.let_all_go();
  EXPECT_EQ(answer(*engine, greedy({1, 2}, 3)).tokens, model.expected_greedy({1, 2}, 3));
}

// Sixty requests on a small pool, a third cancelled at random steps; the rest get their answers.
TEST(Lifecycle, RandomCancellation) {
  FakeModel model;
  std::vector<std::shared_ptr<Generation>> running;
  std::mt19937 rng(9);
  std::binary_semaphore all_submitted{0};
  std::atomic<bool> waited{false};
  model.before_forward = [&](const StepBatch&) {
    if (!waited.exchange(true)) all_submitted.acquire();
    if (rng() % 2 == 0) running[rng() % (running.size() / 3)]->cancel();
  };
  auto engine = start_engine(model, small_config(100, 256));
  running.reserve(60);
  for (uint64_t i = 0; i < 60; ++i) {
    running.push_back(*engine->submit(greedy(prompt_of(1 + static_cast<int64_t>(i % 50), i), 100)));
  }
  all_submitted.release();
  int cancelled = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    const Answer a = drain(*running[i]);
    const auto expected =
        model.expected_greedy(prompt_of(1 + static_cast<int64_t>(i % 50), i), 100);
    if (a.result.reason == FinishReason::cancelled) {
      ++cancelled;
      ASSERT_LT(i, 20u);
      ASSERT_LE(a.tokens.size(), expected.size());
      EXPECT_TRUE(std::equal(a.tokens.begin(), a.tokens.end(), expected.begin()));
    } else {
      EXPECT_EQ(a.tokens, expected) << i;
    }
  }
  EXPECT_GT(cancelled, 0);
  EXPECT_EQ(engine->metrics().blocks_used, 0);
  EXPECT_EQ(model.violations, 0);
}

TEST(Lifecycle, DestructionCancelsEverything) {
  FakeModel model;
  std::vector<std::shared_ptr<Generation>> running;
  {
    auto engine = start_engine(model, small_config());
    for (uint64_t i = 0; i < 20; ++i) {
      running.push_back(*engine->submit(greedy(prompt_of(100, i), 150)));
    }
  }
  for (const auto& g : running) {
    ASSERT_TRUE(g->finished());
    EXPECT_TRUE(g->result().reason == FinishReason::cancelled ||
                g->result().reason == FinishReason::length);
  }
}

// An idle engine does no steps; work wakes it.
TEST(Lifecycle, IdleMeansNoSteps) {
  FakeModel model;
  auto engine = start_engine(model, small_config());
  (void)answer(*engine, greedy({1}, 3));
  const int64_t steps = model.steps;
  EXPECT_EQ(steps, 3);
  (void)answer(*engine, greedy({1}, 2));
  EXPECT_EQ(model.steps, steps + 2);
}

TEST(Lifecycle, ABrokenModelEndsOneRequestWithAnError) {
  FakeModel model;
  std::atomic<bool> broken{true};
  model.change_logits = [&](float* x, int64_t n) {
    if (broken) std::fill_n(x, n, std::nanf(""));
  };
  auto engine = start_engine(model, small_config());
  const Answer a = answer(*engine, greedy({1, 2}, 3));
  EXPECT_EQ(a.result.reason, FinishReason::error);
  EXPECT_THAT(a.result.error, HasSubstr("no finite logit"));
  EXPECT_EQ(engine->metrics().finished_error, 1u);
  broken = false;
  EXPECT_EQ(answer(*engine, greedy({1, 2}, 3)).tokens.size(), 3u);
}

// D20 at this level: a hot request with a tiny temperature beside others.
TEST(Lifecycle, TinyTemperaturesAreGreedy) {
  FakeModel model;
  auto engine = start_engine(model, small_config());
  for (const float t : {0.0f, 1e-5f, 1e-30f, 1e-45f}) {
    Request r = greedy(prompt_of(5, 2), 10);
    r.sampling.temperature = t;
    EXPECT_EQ(answer(*engine, r).tokens, model.expected_greedy(prompt_of(5, 2), 10)) << t;
  }
}

TEST(Lifecycle, LogprobsOfAnswerAndPrompt) {
  FakeModel model;
  EngineConfig config = small_config();
  config.max_num_batched_tokens = 16;
  auto engine = start_engine(model, config);
  Request r = greedy(prompt_of(70, 5), 4);
  r.sampling.logprobs = 2;
  r.sampling.prompt_logprobs = 1;
  r.sampling.logit_bias = {{3, 100.0f}};  // not seen by the log-probabilities
  const Answer a = answer(*engine, r);
  EXPECT_EQ(a.tokens, std::vector<int32_t>(4, 3));
  std::vector<int32_t> seen;
  const auto logprob = [&](int32_t token) {
    const std::vector<float> x = model.expected_logits(seen);
    double sum = 0;
    for (const float v : x) sum += std::exp(static_cast<double>(v));
    return static_cast<double>(x[static_cast<size_t>(token)]) - std::log(sum);
  };
  ASSERT_EQ(a.result.prompt_logprobs.size(), 70u);
  EXPECT_TRUE(a.result.prompt_logprobs[0].empty());
  for (size_t i = 0; i < 74; ++i) {
    const int32_t token = i < 70 ? r.tokens[i] : 3;
    if (i > 0) {
      const auto& got = i < 70 ? a.result.prompt_logprobs[i] : a.events[i - 70].logprobs;
      ASSERT_EQ(got.size(), i < 70 ? 2u : 3u);
      EXPECT_EQ(got[0].token, token);
      EXPECT_NEAR(got[0].logprob, logprob(token), 1e-5) << i;
      const std::vector<float> x = model.expected_logits(seen);
      EXPECT_EQ(got[1].token, std::max_element(x.begin(), x.end()) - x.begin());
    }
    seen.push_back(token);
  }
}

TEST(Lifecycle, CallbacksAndCounters) {
  FakeModel model;
  Gate gate(model);
  auto engine = start_engine(model, small_config());
  auto g = *engine->submit(greedy(prompt_of(10, 1), 5));
  std::atomic<int> calls{0};
  g->on_change([&] { ++calls; });
  EXPECT_EQ(calls, 0);
  gate.let_all_go();
  const Answer a = drain(*g);
  g->on_change(nullptr);  // from here on no call is under way
  EXPECT_GE(calls, 1);
  EXPECT_LE(calls, 5);
  EXPECT_EQ(a.tokens.size(), 5u);
  g->on_change([&] { calls = 100; });
  EXPECT_EQ(calls, 100) << "an ended generation calls at once";
  g->on_change(nullptr);  // the engine may be about to call: it must not find what is gone

  const EngineMetrics m = engine->metrics();
  EXPECT_EQ(m.prompt_tokens, 10u);
  EXPECT_EQ(m.generation_tokens, 5u);
  EXPECT_EQ(m.steps, 5u);
  EXPECT_EQ(m.finished_length, 1u);
  EXPECT_EQ(m.ttft_s.n, 1u);
  EXPECT_EQ(m.inter_token_s.n, 4u);
  EXPECT_EQ(m.e2e_s.n, 1u);
  EXPECT_EQ(m.iteration_tokens.sum, 14.0);
  EXPECT_EQ(m.kv_block_bytes, 4u * 16 * 8);
  EXPECT_EQ(m.blocks_total, 4096);
}

// A model object serves one engine after another: nothing of the first one's pool, of its page
// bounds or of its buffers is left.
TEST(Engine, AModelServesOneEngineAfterAnother) {
  WatchedModel model;
  std::vector<int32_t> want;
  for (const uint64_t blocks : {6u * 20, 6u * 300, 6u * 12, 6u * 90}) {
    for (const char* policy : {"quest", "full"}) {
      auto engine = EngineCore::start(model, tiny_config(model.shape(), 4, blocks, 128));
      ASSERT_TRUE(engine.ok()) << engine.status();
      const KvOptions kv = {{"policy", policy}, {"budget", "32"}};
      std::vector<std::shared_ptr<Generation>> running;
      for (int i = 0; i < 4; ++i)
        running.push_back(*(*engine)->submit(compressed(prompt_of(90, 3, 160), 20, kv)));
      for (const auto& g : running) {
        const Answer a = drain(*g);
        EXPECT_EQ(a.result.reason, FinishReason::length);
        if (std::string_view(policy) == "quest") {
          if (want.empty()) want = a.tokens;
          EXPECT_EQ(a.tokens, want) << blocks;
        }
      }
    }
  }
}

}  // namespace
}  // namespace pagefold
