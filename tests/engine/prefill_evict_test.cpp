// kv.prefill_evict: prompts far larger than the pool, compacted while they are read.
#include <map>

#include "engine/compression.h"
#include "engine/tiny_engine.h"

namespace pagefold::testing {
namespace {

constexpr int64_t kPrompt = 1500, kBudget = 96, kChunk = 64, kTables = 6;

std::vector<KvOptions> wishes() {
  std::vector<KvOptions> all;
  for (const char* policy : {"random", "streaming", "h2o", "scissorhands", "tova", "snapkv",
                             "snapkv-d", "kvcompress", "rkv", "triattention", "adakv"}) {
    KvOptions kv = {{"policy", policy},
                    {"budget", std::to_string(kBudget)},
                    {"interval", "32"},
                    {"prefill_evict", "on"},
                    {"prefill_chunk", std::to_string(kChunk)}};
    const std::string name = policy;
    if (name == "scissorhands") kv["window"] = "48";
    if (name == "triattention") kv["protect_prompt"] = "off", kv["recent"] = "16";
    if (name == "rkv" || name == "adakv" || name.starts_with("snapkv")) kv["window"] = "8";
    all.push_back(std::move(kv));
  }
  return all;
}

// An engine whose pool holds `blocks` blocks. Requests that say nothing of it are compressed, so
// the pool may be smaller than the longest sequence.
EngineConfig small_pool(const ModelShape& shape, int step_rows, uint64_t blocks) {
  EngineConfig c = tiny_config(shape, 4, blocks, kPrompt + 64);
  c.max_num_batched_tokens = step_rows;
  c.kv = {{"policy", "random"}, {"budget", "96"}, {"interval", "32"}};
  return c;
}

// What a run shows of a sequence, told by its first position: tokens dropped so far, by position.
struct Watch {
  std::map<int64_t, int64_t> longest;  // computed tokens: the longest table before the step
  std::vector<int64_t> compacted_at;
  void operator()(const SeqRows& s, int64_t first_position) {
    int64_t most = 0;
    for (int t = 0; t < kTables; ++t) most = std::max(most, s.tables[t].len);
    if (!longest.empty()) {
      const auto [computed, before] = *longest.rbegin();
      if (most < before + first_position - computed) compacted_at.push_back(first_position);
    }
    longest[first_position] = most;
  }
};

struct Traced {
  Answer answer;
  Watch watch;
};

ModelShape tiny_shape() { return WatchedModel().shape(); }

Traced run_alone(const Request& request, int step_rows, uint64_t blocks) {
  WatchedModel model;
  Traced run;
  model.before_forward = [&](const StepBatch& b) {
    run.watch(b.seqs[0], b.positions[static_cast<size_t>(b.seqs[0].row)]);
  };
  auto engine = EngineCore::start(model, small_pool(model.shape(), step_rows, blocks));
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (engine.ok()) run.answer = answer(**engine, request);
  return run;
}

TEST(PrefillEvict, APromptFarLargerThanThePoolIsServed) {
  // Budget, a chunk, and for uneven tables a block each: the whole prompt takes 564.
  constexpr uint64_t kBlocks = kTables * ((kBudget + kChunk) / 16 + 2);
  const ModelShape tiny = tiny_shape();
  static_assert(kBlocks * 7 < kPrompt / 16 * kTables);
  for (const KvOptions& kv : wishes()) {
    SCOPED_TRACE(words_of(kv));
    const Request request = compressed(prompt_of(kPrompt, 3, 160), 24, kv);
    const Traced run = run_alone(request, 64, kBlocks);
    if (run.answer.tokens.size() != 24) {
      ADD_FAILURE() << run.answer.result.error;
      continue;
    }
    // Only at multiples of the chunk, and at the prompt's end.
    EXPECT_GE(run.watch.compacted_at.size(), 20u);
    for (const int64_t n : run.watch.compacted_at) {
      EXPECT_TRUE(n >= kPrompt || n % kChunk == 0) << n;
    }
    const bool uneven = kv.at("policy") == "adakv" || kv.at("policy") == "kvcompress";
    for (const auto& [computed, longest] : run.watch.longest) {
      if (!uneven) {
        EXPECT_LE(longest, kBudget + kChunk) << computed;
      }
    }
    // What admission counts on is what it takes, and no more.
    const EngineConfig c = small_pool(tiny, 64, kBlocks);
    const KvModel model = kv_model(tiny, 16);
    const CacheShape shape{3, 2, 16, {0, 0, 0}};
    const auto plan = resolve_kv_plan(kv, c, model, kPrompt);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const int64_t counted = peak_blocks(**plan, model, shape, kPrompt, 24, 64);
    const auto peak = static_cast<int64_t>(run.answer.result.kv.peak_bytes) / (2 * 4 * 16 * 16);
    EXPECT_LE(peak, counted);
    EXPECT_LE(counted, static_cast<int64_t>(kBlocks));
    if (!uneven && kv.at("policy") != "scissorhands") {
      EXPECT_EQ(peak, counted);
    }
  }
}

TEST(PrefillEvict, WithoutItTheSamePromptIsRefused) {
  KvOptions kv = wishes()[0];
  WatchedModel model;
  auto engine = EngineCore::start(model, small_pool(model.shape(), 64, 84));
  ASSERT_TRUE(engine.ok()) << engine.status();
  kv["prefill_evict"] = "off";
  const auto refused = (*engine)->submit(compressed(prompt_of(kPrompt, 3, 160), 24, kv));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(message_of(refused.status()).find("cache blocks"), std::string::npos);
}

// Neither how steps are cut, nor how large the pool is, nor who else is there.
TEST(PrefillEvict, TheAnswerDependsOnTheRequestAlone) {
  for (const KvOptions& kv : wishes()) {
    SCOPED_TRACE(words_of(kv));
    const Request request = compressed(prompt_of(700, 3, 160), 16, kv);
    const Traced run = run_alone(request, 64, 96);
    for (const int step_rows : {17, 512}) {
      const Traced other = run_alone(request, step_rows, 40000);
      expect_same_answer(other.answer, run.answer, fmt::format("{} rows a step", step_rows));
      EXPECT_EQ(other.watch.compacted_at, run.watch.compacted_at);
    }
    // Beside three others: the rows of a step are shared, so chunks end anywhere.
    std::vector<Request> together = {
        compressed(prompt_of(333, 4, 160), 40, {{"policy", "full"}}), request,
        compressed(prompt_of(90, 5, 160), 30, {{"policy", "h2o"}, {"budget", "48"}}),
        compressed(prompt_of(200, 6, 160), 20, kv)};
    const auto answers =
        answers_together(together, {}, [](const ModelShape& s) { return tiny_config(s, 4); });
    ASSERT_EQ(answers.size(), 4u);
    expect_same_answer(answers[1], run.answer, "beside others");
  }
}

}  // namespace
}  // namespace pagefold::testing
