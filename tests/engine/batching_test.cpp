// The answer of a request is its own, whatever runs beside it: chunks, batches, pauses, windows.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <semaphore>

#include "engine/engine_test_util.h"

namespace pagefold {
namespace {

using namespace testing;

// Requests of every kind: greedy, sampled, penalised, with log-probabilities of both sorts.
Request mixed_request(uint64_t i) {
  Request r;
  r.id = "mixed-" + std::to_string(i);
  r.tokens = prompt_of(1 + static_cast<int64_t>(i * 37 % 90), i);
  r.sampling.max_tokens = 1 + static_cast<int64_t>(i * 13 % 60);
  r.sampling.temperature = i % 3 == 0 ? 0.0f : 0.8f;
  r.sampling.seed = 1000 + i;
  r.eos_token_ids = {5};
  r.sampling.ignore_eos = i % 2 == 0;
  if (i % 4 == 1) r.sampling.top_p = 0.9f;
  if (i % 4 == 2) r.sampling.frequency_penalty = 1.0f;
  if (i % 4 == 3) r.sampling.repetition_penalty = 1.3f;
  if (i % 5 == 0) r.sampling.logprobs = 3;
  if (i % 7 == 0) r.sampling.prompt_logprobs = 2;
  if (i % 6 == 0) r.sampling.min_tokens = 1;
  return r;
}

std::vector<std::vector<float>> flat(const std::vector<std::vector<TokenLogprob>>& rows) {
  std::vector<std::vector<float>> out;
  for (const auto& row : rows) {
    auto& flat_row = out.emplace_back();
    for (const TokenLogprob& t : row) {
      flat_row.push_back(static_cast<float>(t.token));
      flat_row.push_back(t.logprob);
    }
  }
  return out;
}

void expect_same(const Answer& a, const Answer& b, uint64_t i) {
  EXPECT_EQ(a.tokens, b.tokens) << "request " << i;
  EXPECT_EQ(a.result.reason, b.result.reason) << "request " << i;
  EXPECT_EQ(a.result.stop_token, b.result.stop_token) << "request " << i;
  EXPECT_EQ(flat(a.result.prompt_logprobs), flat(b.result.prompt_logprobs)) << "request " << i;
  ASSERT_EQ(a.events.size(), b.events.size());
  for (size_t t = 0; t < a.events.size(); ++t) {
    EXPECT_EQ(flat({a.events[t].logprobs}), flat({b.events[t].logprobs})) << "request " << i;
  }
}

std::vector<Answer> solo_answers(uint64_t n, const std::vector<int64_t>& windows) {
  FakeModel model(64, windows);
  EngineConfig config = small_config();
  config.max_num_seqs = 1;
  auto engine = start_engine(model, config);
  std::vector<Answer> answers;
  for (uint64_t i = 0; i < n; ++i) answers.push_back(answer(*engine, mixed_request(i)));
  EXPECT_EQ(model.violations, 0);
  return answers;
}

struct Setting {
  std::vector<int64_t> windows;
  int max_seqs, max_rows;
  uint64_t blocks;
  bool pauses;
};

class Mixed : public ::testing::TestWithParam<Setting> {};

// Fifty requests that arrive while others run: one every few steps, from within the steps, so that
// the arrivals are the same in every run.
TEST_P(Mixed, FiftyRandomArrivalsGetTheirSoloAnswers) {
  constexpr uint64_t kRequests = 50;
  const Setting& setting = GetParam();
  const std::vector<Answer> solo = solo_answers(kRequests, setting.windows);

  FakeModel model(64, setting.windows);
  EngineConfig config = small_config(setting.blocks, 160);
  config.max_num_seqs = setting.max_seqs;
  config.max_num_batched_tokens = setting.max_rows;
  std::vector<std::shared_ptr<Generation>> running(kRequests);
  std::atomic<uint64_t> submitted{0};
  EngineCore* engine_in_step = nullptr;
  std::mt19937 rng(4);
  std::binary_semaphore first_submitted{0};
  bool first_step = true;
  const auto submit_next = [&] {
    const uint64_t i = submitted;
    auto g = engine_in_step->submit(mixed_request(i));
    ASSERT_TRUE(g.ok()) << g.status();
    running[i] = *g;
    ++submitted;
  };
  model.before_forward = [&](const StepBatch& batch) {
    if (first_step) first_submitted.acquire();
    first_step = false;
    EXPECT_LE(batch.seqs.size(), static_cast<size_t>(setting.max_seqs));
    EXPECT_LE(batch.tokens.size(), static_cast<size_t>(setting.max_rows));
    const uint64_t more = rng() % 3;
    for (uint64_t k = 0; k < more && submitted < kRequests; ++k) submit_next();
  };
  auto engine = start_engine(model, config);
  engine_in_step = engine.get();
  {
    // The first one starts the steps that submit the others. It is long enough to see them all in.
    auto starter = engine->submit(greedy(prompt_of(3, 999), 150));
    ASSERT_TRUE(starter.ok());
    submit_next();
    first_submitted.release();
    const Answer a = drain(**starter);
    EXPECT_EQ(a.tokens, model.expected_greedy(prompt_of(3, 999), 150));
  }
  ASSERT_EQ(submitted, kRequests);
  for (uint64_t i = 0; i < kRequests; ++i) expect_same(drain(*running[i]), solo[i], i);
  const EngineMetrics m = engine->metrics();
  EXPECT_EQ(m.blocks_used, 0);
  EXPECT_EQ(m.running, 0);
  EXPECT_EQ(m.waiting, 0);
  EXPECT_EQ(m.preemptions > 0, setting.pauses);
  EXPECT_EQ(m.finished_stop + m.finished_length, kRequests + 1);
  EXPECT_EQ(model.violations, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Mixed,
    ::testing::Values(Setting{{0, 0}, 8, 64, 4096, false}, Setting{{0, 0}, 8, 16, 4096, false},
                      Setting{{0, 0}, 64, 512, 4096, false}, Setting{{0, 0}, 8, 64, 60, true},
                      Setting{{0, 0}, 8, 8, 44, true}, Setting{{24, 0}, 8, 16, 4096, false},
                      Setting{{24, 7, 0}, 8, 16, 80, false}, Setting{{24, 0}, 8, 16, 44, true}));

// A pool for one and a half sequences and eight that grow: pauses are certain, nobody's answer
// changes, and as the oldest is resumed first, they end in the order they came.
TEST(Pausing, OldestFirstAndTheSameAnswers) {
  FakeModel model;
  std::binary_semaphore all_submitted{0};
  bool first_step = true;
  model.before_forward = [&](const StepBatch&) {
    if (first_step) all_submitted.acquire();
    first_step = false;
  };
  const EngineConfig config = small_config(4 * 16 * 3 / 2, 256);
  auto engine = start_engine(model, config);
  std::vector<std::shared_ptr<Generation>> running;
  std::vector<uint64_t> ended;  // by the engine thread
  std::counting_semaphore<> told{0};
  for (uint64_t i = 0; i < 8; ++i) {
    auto g = engine->submit(greedy(prompt_of(20, i), 150));
    ASSERT_TRUE(g.ok());
    running.push_back(*g);
    running[i]->on_change([&ended, &told, i, g = running[i].get()] {
      if (!g->finished()) return;
      ended.push_back(i);
      told.release();
    });
  }
  all_submitted.release();
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(drain(*running[i]).tokens, model.expected_greedy(prompt_of(20, i), 150)) << i;
  }
  // An end can be read a moment before its callback runs.
  for (size_t i = 0; i < running.size(); ++i) told.acquire();
  for (const auto& g : running) g->on_change(nullptr);
  EXPECT_EQ(ended, (std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_GT(engine->metrics().preemptions, 0u);
  EXPECT_EQ(engine->metrics().blocks_used, 0);
  EXPECT_EQ(model.violations, 0);
}

// D03: 1,000 requests, 8 at once, a pool for about 4 of them. All end; nothing is refused.
TEST(Pausing, AThousandRequestsOnASmallPool) {
  FakeModel model;
  const EngineConfig config = small_config(4 * 16 + 8, 256);
  auto engine = start_engine(model, config);
  std::vector<std::shared_ptr<Generation>> running;
  for (uint64_t i = 0; i < 1000; ++i) {
    auto g = engine->submit(greedy(prompt_of(1 + static_cast<int64_t>(i * 7919 % 200), i), 10));
    ASSERT_TRUE(g.ok());
    running.push_back(*g);
  }
  for (const auto& g : running) {
    const Answer a = drain(*g);
    EXPECT_EQ(a.result.reason, FinishReason::length);
    EXPECT_EQ(a.tokens.size(), 10u);
  }
  EXPECT_EQ(engine->metrics().blocks_used, 0);
  EXPECT_EQ(model.violations, 0);
}

}  // namespace
}  // namespace pagefold
