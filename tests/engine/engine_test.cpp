#include "engine/engine.h"

#include <gtest/gtest.h>

#include "engine/engine_test_util.h"

namespace pagefold {
namespace {

using namespace testing;

TEST(Engine, GreedyEqualsTheModelWithoutACache) {
  FakeModel model;
  auto engine = start_engine(model, small_config());
  const std::vector<int32_t> prompt = prompt_of(37, 1);
  const Answer a = answer(*engine, greedy(prompt, 60));
  EXPECT_EQ(a.tokens, model.expected_greedy(prompt, 60));
  EXPECT_EQ(a.result.reason, FinishReason::length);
  EXPECT_EQ(a.result.prompt_tokens, 37);
  EXPECT_EQ(a.result.completion_tokens, 60);
  EXPECT_EQ(a.result.kv_slots, 4 * (37 + 60 - 1));
  EXPECT_EQ(a.result.kv_blocks, 4 * 6);
  EXPECT_EQ(model.violations, 0);
  EXPECT_EQ(engine->metrics().blocks_used, 0);
}

// What limits.h does not see: the wishes for the cache.
TEST(Engine, ChecksWishesForTheCache) {
  FakeModel model;
  auto engine = start_engine(model, small_config());
  Request r = greedy(prompt_of(10, 1), 5);
  EXPECT_TRUE(engine->check(r).ok());
  r.kv = {{"policy", "h3o"}};
  const Status s = engine->check(r);
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(message_of(s).starts_with("kv.policy: unknown policy \"h3o\"")) << s;
  EXPECT_EQ(engine->submit(r).status(), s);
}

TEST(Engine, ChunksAndBatchesDoNotChangeAnswers) {
  for (const int rows : {8, 16, 64, 512}) {
    FakeModel model;
    EngineConfig config = small_config();
    config.max_num_batched_tokens = rows;
    auto engine = start_engine(model, config);
    std::vector<std::shared_ptr<Generation>> running;
    for (uint64_t i = 0; i < 16; ++i) {
      running.push_back(*engine->submit(greedy(prompt_of(1 + static_cast<int64_t>(i * 7), i), 20)));
    }
    for (uint64_t i = 0; i < 16; ++i) {
      const Answer a = drain(*running[i]);
      EXPECT_EQ(a.tokens, model.expected_greedy(prompt_of(1 + static_cast<int64_t>(i * 7), i), 20))
          << i << " with chunks of " << rows;
    }
    EXPECT_EQ(model.violations, 0);
    EXPECT_EQ(engine->metrics().blocks_used, 0);
  }
}

}  // namespace
}  // namespace pagefold
