// The calculator against the allocator: engines of many shapes, types, block sizes, chunks and
// policies run one sequence each, and what their pools held must be what was calculated, byte for
// byte.
#include <gtest/gtest.h>

#include "api/calc_cases.h"
#include "engine/config.h"
#include "engine/tiny_engine.h"

namespace pagefold::testing {
namespace {

struct Types {
  const char *k, *v;
  int group;
};
constexpr Types kTypes[] = {{"float32", "auto", 0},   {"bfloat16", "auto", 0},
                            {"float16", "int8", 0},   {"fp8", "auto", 0},
                            {"int8", "int4", 0},      {"int4", "auto", 32},
                            {"fp8_e5m2", "int4", 32}, {"bfloat16", "fp8", 0}};
constexpr int kBlockSizes[] = {16, 32, 64, 128};
constexpr int kChunks[] = {64, 16, 23, 200};

struct Shape {
  TinyHeads heads;
  std::vector<int> windows;  // [3 layers] 0: full
};
const Shape kShapes[] = {
    {{4, 2, 16}, {0, 0, 0}}, {{4, 4, 8}, {0, 0, 0}},    {{6, 1, 32}, {0, 0, 0}},
    {{6, 3, 64}, {0, 0, 0}}, {{4, 2, 16}, {24, 0, 24}}, {{4, 2, 40}, {40, 40, 0}},
};

// Budgets that every block size allows.
std::vector<KvOptions> policies() {
  const auto with = [](const char* policy, KvOptions more) {
    more["policy"] = policy;
    return more;
  };
  const KvOptions often = {{"budget", "48"}, {"interval", "8"}, {"recent", "8"}};
  const auto also = [&](KvOptions more) {
    more.insert(often.begin(), often.end());
    return more;
  };
  return {
      with("full", {}),
      with("random", often),
      with("random", {{"budget", "25%"}, {"interval", "5"}, {"recent", "3"}, {"sinks", "2"}}),
      with("random", also({{"protect_prompt", "on"}})),
      with("random", also({{"keep", "3:9,12:14"}})),
      with("random", also({{"prefill_evict", "on"}, {"prefill_chunk", "32"}})),
      with("random", {{"packing", "block"}, {"budget", "330"}, {"interval", "8"}, {"recent", "8"}}),
      with("random", also({{"alloc", "pyramid"}})),
      with("streaming", {{"budget", "40"}, {"interval", "11"}}),
      with("h2o", {{"budget", "50"}}),
      with("scissorhands", {{"budget", "48"}}),
      with("scissorhands", {{"budget", "40"}, {"drop", "7"}}),
      with("tova", {{"budget", "33"}}),
      with("snapkv", {{"budget", "48"}, {"window", "8"}}),
      with("pyramidkv", {{"budget", "48"}, {"window", "8"}}),
      with("snapkv-d", also({{"window", "8"}})),
      with("rkv", often),
      with("triattention", also({{"protect_prompt", "off"}})),
      with("triattention", {{"budget", "24"}, {"interval", "16"}, {"recent", "4"}}),
      with("quest", {{"budget", "48"}}),
      // Scores decide: bounds.
      with("adakv", {{"budget", "48"}, {"window", "8"}}),
      with("kvcompress", {{"budget", "330"}, {"interval", "16"}, {"recent", "8"}}),
      with("random", also({{"packing", "off"}})),
  };
}

Json config_of(const Shape& shape) {
  Json c = WatchedModel::config_of(shape.heads);
  Json types = Json::array();
  for (const int w : shape.windows) {
    types.push_back(w > 0 ? "sliding_attention" : "full_attention");
    if (w > 0) c["sliding_window"] = w;
  }
  if (c.contains("sliding_window")) {
    c["layer_types"] = types;
    c["architectures"] = {"MistralForCausalLM"};
    c["model_type"] = "mistral";
  }
  return c;
}

struct Seen {
  uint64_t peak = 0, end = 0;  // bytes
  uint64_t steady = 0;         // after the last compaction
  int64_t steady_at = 0;       // tokens computed then; 0: none
};

Seen run(WatchedModel& model, const EngineConfig& config, const KvOptions& kv, int64_t prompt,
         int64_t max_tokens) {
  Seen seen;
  EngineCore* core = nullptr;
  uint64_t compactions = 0;
  std::binary_semaphore submitted{0};
  bool first = true;
  // Between two steps the published counters are those of the end of the last one.
  model.before_forward = [&](const StepBatch& batch) {
    if (first) submitted.acquire();
    first = false;
    const EngineMetrics m = core->metrics();
    if (m.compactions == compactions) return;
    compactions = m.compactions;
    seen.steady_at = batch.positions.front();
    seen.steady = static_cast<uint64_t>(m.blocks_used) * m.kv_block_bytes;
  };
  auto engine = EngineCore::start(model, config);
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return seen;
  core = engine->get();
  const auto generation = core->submit(compressed(prompt_of(prompt, 7, 160), max_tokens, kv));
  EXPECT_TRUE(generation.ok()) << generation.status();
  submitted.release();
  if (!generation.ok()) return seen;
  const GenerationResult result = drain(**generation).result;
  EXPECT_EQ(result.reason, FinishReason::length) << result.error;
  seen.peak = result.kv.peak_bytes;
  seen.end = result.kv.bytes;
  engine->reset();
  model.before_forward = nullptr;
  return seen;
}

CalcResult calculated_at(CalcRequest q, int64_t tokens) {
  q.tokens = tokens;
  return calculated(q);
}

// True: the calculator said that its figures are exact, and they were.
bool expect_equal(const CalcRequest& q, const Seen& seen, int64_t tokens) {
  const CalcResult all = calculated_at(q, tokens);
  const CalcResult last = seen.steady_at > 0 ? calculated_at(q, seen.steady_at) : all;
  CalcRequest uncompressed = q;
  uncompressed.kv.clear();
  const CalcResult full = calculated_at(uncompressed, tokens);
  EXPECT_EQ(all.kv.allocated_bytes, full.kv.allocated_bytes);
  EXPECT_GE(all.kv.reserved_bytes, seen.peak);
  if (!all.kv.exact) {
    EXPECT_GE(all.kv.peak_bytes, seen.peak);
    EXPECT_GE(last.kv.steady_bytes, seen.steady);
    return false;
  }
  EXPECT_EQ(all.kv.peak_bytes, seen.peak);
  if (seen.steady_at > 0) {
    EXPECT_EQ(last.kv.steady_bytes, seen.steady) << "after " << seen.steady_at << " tokens";
    EXPECT_GT(last.kv.compactions, 0);
  } else {
    EXPECT_EQ(all.kv.allocated_bytes, seen.end);
    EXPECT_EQ(all.kv.steady_bytes, seen.end);
  }
  return true;
}

TEST(CalcAllocator, EqualsThePoolByteForByte) {
  const std::vector<KvOptions> all = policies();
  int exact = 0, bounds = 0, compacted = 0;
  uint64_t draw = 0;
  for (const Shape& shape : kShapes) {
    const Json config_json = config_of(shape);
    const std::vector<TinyTensor> tensors = tiny_tensors(config_json);
    for (const KvOptions& kv : all) {
      for (int turn = 0; turn < 2; ++turn) {
        // Settings walk through all their values; each meets the others.
        ++draw;
        const Types& types = kTypes[draw % std::size(kTypes)];
        const int block_size = kBlockSizes[(draw / 3) % std::size(kBlockSizes)];
        const int chunk = kChunks[(draw / 2) % std::size(kChunks)];
        const bool wide = kv.contains("budget") && kv.at("budget") == "330";
        const int64_t prompt = wide ? 345 + static_cast<int64_t>(draw % 7)
                                    : 20 + static_cast<int64_t>(draw * 37 % 150);
        const int64_t max_tokens = 20 + static_cast<int64_t>(draw * 13 % 40);
        SCOPED_TRACE(fmt::format(
            "{} windows {} {} {}, k {} v {} group {}, block {}, chunk {}, prompt {}, answer {}",
            words_of(kv), shape.windows[0], shape.windows[1], shape.windows[2], types.k, types.v,
            types.group, block_size, chunk, prompt, max_tokens));
        WatchedModel model(config_json, tensors, 1);
        EngineConfig config = tiny_config(model.shape(), 1, 20000, 1024);
        config.block_size = block_size;
        config.max_num_batched_tokens = chunk;
        const auto format =
            resolve_kv_format({types.k, types.v, types.group}, DType::f32, KvRecipe());
        ASSERT_TRUE(format.ok()) << format.status();
        config.kv_format = *format;
        const Seen seen = run(model, config, kv, prompt, max_tokens);
        CalcRequest q;
        q.config_json = dump_json(config_json);
        q.prompt_tokens = prompt;
        q.kv_cache_dtype = types.k;
        q.kv_cache_dtype_v = types.v;
        q.kv_cache_group = types.group;
        q.block_size = block_size;
        q.max_num_batched_tokens = chunk;
        q.kv = kv;
        (expect_equal(q, seen, prompt + max_tokens - 1) ? exact : bounds) += 1;
        compacted += seen.steady_at > 0 ? 1 : 0;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GE(exact, 200);
  EXPECT_GE(compacted, 150);
  EXPECT_LE(bounds, 50);
}

// The line that operators look for, and the calculator's other direction.
TEST(CalcAllocator, CapacityIsTheStartUpLines) {
  for (const Shape& shape : kShapes) {
    const Json config_json = config_of(shape);
    WatchedModel model(config_json, tiny_tensors(config_json), 1);
    const EngineConfig config = tiny_config(model.shape(), 1, 977, 200);
    auto engine = EngineCore::start(model, config);
    ASSERT_TRUE(engine.ok()) << engine.status();
    CalcRequest q;
    q.config_json = dump_json(config_json);
    q.tokens = 200;
    q.kv_cache_dtype = "float32";
    q.max_num_batched_tokens = config.max_num_batched_tokens;
    q.kv_cache_memory_bytes = config.kv_cache_memory_bytes;
    q.prompt_tokens = 200;
    const CalcResult r = calculated(q);
    ASSERT_TRUE(r.fits);
    EXPECT_EQ(r.fits->max_tokens, (*engine)->kv_capacity_tokens());
  }
}

}  // namespace
}  // namespace pagefold::testing
