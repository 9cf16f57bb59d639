#include "engine/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine_test_util.h"

namespace pagefold {
namespace {

using ::testing::HasSubstr;

// SmolLM2-135M: 30 layers x 3 KV heads x 64; a bfloat16 block of 16 slots is 4,096 bytes, a token
// 23,040 bytes.
ModelShape smollm2() {
  ModelShape m;
  m.n_layers = 30;
  m.n_heads = 9;
  m.n_kv_heads = 3;
  m.head_dim = 64;
  m.hidden = 576;
  m.vocab_size = 49152;
  m.context_length = 8192;
  m.layer_window.assign(30, 0);
  return m;
}
constexpr uint64_t kBlock = 4096;
constexpr uint64_t kSequence = 90 * (8192 / 16) * kBlock;  // of 8,192 tokens
constexpr uint64_t kGiB = uint64_t{1} << 30;

std::string error_of(const EngineOptions& o, uint64_t free_memory = 64 * kGiB) {
  const auto config = resolve_config(o, smollm2(), DType::bf16, free_memory);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return message_of(config.status());
}

TEST(Config, Defaults) {
  const auto config = resolve_config({}, smollm2(), DType::bf16, 4 * kGiB);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_model_len, 8192);
  EXPECT_EQ(config->block_size, 16);
  EXPECT_EQ(config->max_num_seqs, 64);
  EXPECT_EQ(config->kv_cache_memory_bytes, 2 * kGiB);
  const auto size = pool_size(*config, smollm2(), kBlock);
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size->n_blocks, 2 * kGiB / kBlock);
  EXPECT_EQ(size->capacity_tokens, 524288 / 90 * 16);
  EXPECT_NEAR(size->concurrency, 524288.0 / (90 * 512), 1e-12);
}

TEST(Config, TheShareOfFreeMemoryIsCappedToWhatCanBeUsed) {
  EngineOptions o;
  o.max_num_seqs = 4;
  const auto config = resolve_config(o, smollm2(), DType::bf16, 1024 * kGiB);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->kv_cache_memory_bytes, 4 * kSequence);
}

TEST(Config, BytesAreRoundedDownToBlocks) {
  EngineOptions o;
  o.kv_cache_memory_bytes = kSequence + kBlock + 4095;
  const auto config = resolve_config(o, smollm2(), DType::bf16, kGiB);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->kv_cache_memory_bytes, kSequence + kBlock);
}

TEST(Config, TooSmallAPoolSaysWhatWouldFit) {
  EngineOptions o;
  o.kv_cache_memory_bytes = kSequence;
  EXPECT_TRUE(resolve_config(o, smollm2(), DType::bf16, kGiB).ok());
  o.kv_cache_memory_bytes = kSequence - 1;
  const std::string error = error_of(o);
  EXPECT_THAT(error, HasSubstr("8192 tokens needs 188743680 bytes"));
  EXPECT_THAT(error, HasSubstr("only 188739584 bytes"));
  EXPECT_THAT(error, HasSubstr("lower --max-model-len to at most 8176"));
  o.max_model_len = 8176;
  EXPECT_TRUE(resolve_config(o, smollm2(), DType::bf16, kGiB).ok());
  o.kv_cache_memory_bytes = 1;
  EXPECT_THAT(error_of(o), HasSubstr("only 0 bytes (0.0 MiB) are available; give at least"));
}

TEST(Config, ModelLength) {
  EngineOptions o;
  o.max_model_len = 8193;
  EXPECT_THAT(error_of(o), HasSubstr("8193 is beyond the model's own limit of 8192"));
  o.allow_long_context = true;
  EXPECT_TRUE(resolve_config(o, smollm2(), DType::bf16, 64 * kGiB).ok());
  for (const int64_t n : {int64_t{-1}, int64_t{1}, int64_t{1} << 40}) {
    o.max_model_len = n;
    EXPECT_THAT(error_of(o), HasSubstr("--max-model-len"));
  }
}

TEST(Config, OptionsOutOfRange) {
  const auto with = [](auto change) {
    EngineOptions o;
    change(o);
    return error_of(o);
  };
  for (const int b : {0, -16, 8, 17, 48, 512}) {
    EXPECT_THAT(with([b](EngineOptions& o) { o.block_size = b; }), HasSubstr("--block-size"));
  }
  EXPECT_THAT(with([](EngineOptions& o) { o.max_num_seqs = 0; }), HasSubstr("--max-num-seqs"));
  EXPECT_THAT(with([](EngineOptions& o) { o.max_num_batched_tokens = 0; }),
              HasSubstr("--max-num-batched-tokens"));
  EXPECT_THAT(with([](EngineOptions& o) { o.max_queued_requests = 0; }),
              HasSubstr("--max-queued-requests"));
  for (const double u : {0.0, -1.0, 1.5, std::nan("")}) {
    EXPECT_THAT(with([u](EngineOptions& o) { o.memory_utilization = u; }),
                HasSubstr("--memory-utilization"));
  }
  EXPECT_THAT(with([](EngineOptions& o) {
                o.kv = {{"policy", "h2o"}, {"budget", "0"}};
              }),
              HasSubstr("kv.budget"));
  EXPECT_THAT(with([](EngineOptions& o) {
                o.kv = {{"policy", "h3o"}};
              }),
              HasSubstr("known policies: full"));
}

TEST(Config, EveryRunningSequenceGetsARow) {
  EngineOptions o;
  o.max_num_batched_tokens = 16;
  const auto config = resolve_config(o, smollm2(), DType::bf16, 64 * kGiB);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->max_num_seqs, 16);
}

TEST(Config, WindowsNeedLess) {
  ModelShape m = smollm2();
  for (size_t l = 0; l < 30; l += 2) m.layer_window[l] = 512;
  EngineOptions o;
  o.max_num_seqs = 1;
  const auto config = resolve_config(o, m, DType::bf16, 1024 * kGiB);
  ASSERT_TRUE(config.ok());
  // Window layers: 512 + a step of 512 + up to 15 before the boundary = 65 blocks.
  EXPECT_EQ(config->kv_cache_memory_bytes, (45 * 512 + 45 * 65) * kBlock);
}

TEST(Config, StartRefusesAPoolThatHoldsNoSequence) {
  testing::FakeModel model;
  EngineConfig config = testing::small_config(4 * 16 - 1, 256);
  EXPECT_THAT(message_of(EngineCore::start(model, config).status()),
              HasSubstr("lower --max-model-len to at most 240"));
}

TEST(Config, Commas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(83488), "83,488");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(-123456), "-123,456");
}

}  // namespace
}  // namespace pagefold
