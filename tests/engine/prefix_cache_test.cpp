// The prefix cache through the whole engine: it changes blocks and time, never an answer.
#include <algorithm>
#include <set>

#include "engine/tiny_engine.h"

namespace pagefold::testing {
namespace {

constexpr int64_t kSystem = 150;  // tokens that all users share

EngineConfig cached(const ModelShape& shape, int max_seqs, uint64_t blocks = 40000) {
  EngineConfig c = tiny_config(shape, max_seqs, blocks);
  c.prefix_caching = true;
  return c;
}

// The shared system prompt and a question of one's own.
std::vector<int32_t> question(uint64_t user, int64_t n = 0) {
  std::vector<int32_t> tokens = prompt_of(kSystem, 99, 160);
  const int64_t own = n > 0 ? n : 20 + static_cast<int64_t>(user * 7 % 20);
  const auto more = prompt_of(own, 1000 + user, 160);
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

std::vector<Request> five_users(const KvOptions& kv, int64_t max_tokens) {
  std::vector<Request> requests;
  for (uint64_t user = 0; user < 5; ++user) {
    requests.push_back(compressed(question(user), max_tokens, kv, user % 2 * (user + 1)));
  }
  return requests;
}

// Blocks that the sequences of a step hold, each once, and as often as they are in a table.
struct Blocks {
  size_t distinct = 0, all = 0;
};
Blocks blocks_of(const StepBatch& batch, int n_tables) {
  std::set<BlockId> distinct;
  Blocks n;
  for (const SeqRows& s : batch.seqs) {
    for (int t = 0; t < n_tables; ++t) {
      const TableView& v = s.tables[t];
      for (int64_t b = v.start / 16; b < (v.len + s.n_rows + 15) / 16; ++b) {
        if (v.blocks[b] == kNoBlock) continue;
        distinct.insert(v.blocks[b]);
        ++n.all;
      }
    }
  }
  n.distinct = distinct.size();
  return n;
}

// All requests wait when the first step begins; `first`, if any, was answered before.
struct Together {
  std::vector<Answer> answers;
  Blocks blocks;  // at the first step in which all of them decode
  int64_t rows = 0;
  EngineMetrics metrics;
};
Together run_together(WatchedModel& model, const EngineConfig& config,
                      const std::vector<Request>& requests, const Request* first = nullptr) {
  Together out;
  std::binary_semaphore all_submitted{0};
  bool waits = false;
  model.before_forward = [&](const StepBatch& b) {
    if (waits) all_submitted.acquire();
    waits = false;
    out.rows += static_cast<int64_t>(b.tokens.size());
    if (out.blocks.all == 0 && b.seqs.size() == requests.size() &&
        b.tokens.size() == requests.size()) {
      out.blocks = blocks_of(b, model.shape().n_layers * model.shape().n_kv_heads);
    }
  };
  auto engine = EngineCore::start(model, config);
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (first != nullptr) answer(**engine, *first);
  waits = true;
  out.rows = 0;
  std::vector<std::shared_ptr<Generation>> running;
  for (const Request& r : requests) {
    auto g = (*engine)->submit(r);
    EXPECT_TRUE(g.ok()) << g.status();
    if (g.ok()) running.push_back(*g);
  }
  all_submitted.release();
  for (const auto& g : running) out.answers.push_back(drain(*g));
  out.metrics = (*engine)->metrics();
  EXPECT_EQ(out.metrics.blocks_used, 0);
  EXPECT_EQ(out.metrics.blocks_cached, out.metrics.prefix_entries * 6);
  return out;
}

// Policies that must see every row of the prompt, or all of so short a one.
bool shares(const KvOptions& kv) {
  const std::string& policy = kv.at("policy");
  return policy != "h2o" && policy != "scissorhands" && !kv.contains("prefill_evict");
}

// Acceptance 2 of the serving work, scaled down: each policy in turn.
TEST(PrefixCache, FiveUsersOfOneSystemPromptGetTheirSoloAnswers) {
  for (const KvOptions& kv : every_policy()) {
    const std::string words = words_of(kv);
    const std::vector<Request> requests = five_users(kv, 24);
    const std::vector<Answer> alone = answers_alone(requests, {});

    WatchedModel model;  // one after the other: cold, then warm
    auto engine = EngineCore::start(model, cached(model.shape(), 8));
    ASSERT_TRUE(engine.ok()) << engine.status();
    for (int round = 0; round < 2; ++round) {
      for (size_t i = 0; i < requests.size(); ++i) {
        const Answer got = answer(**engine, requests[i]);
        expect_same_text(got, alone[i], fmt::format("{}, round {}, {}", words, round, i));
        const bool warm = shares(kv) && (i > 0 || round > 0);
        // What was asked before is found up to where the policy must look.
        const auto n = static_cast<int64_t>(requests[i].tokens.size());
        const int64_t least = warm ? (round > 0 ? n - 32 - 16 : kSystem - 16) / 16 * 16 : 0;
        if (kv.at("policy") != "triattention") {  // which looks at 128 rows
          EXPECT_GE(got.result.cached_tokens, least) << words << i;
        }
        EXPECT_EQ(got.result.cached_tokens % 16, 0);
        EXPECT_LT(got.result.cached_tokens, n);
        EXPECT_EQ(got.result.kv.cache_bypass, !shares(kv)) << words;
        EXPECT_EQ(got.result.cached_tokens > 0, warm) << words << i;
        EXPECT_TRUE(shares(kv) || !got.result.kv.cache_note.empty()) << words;
      }
    }
    const EngineMetrics m = (*engine)->metrics();
    EXPECT_GT(m.prefix_queries, 0u);
    EXPECT_EQ(m.prefix_hits > 0, shares(kv)) << words;

    WatchedModel together;  // and at once
    const Together got = run_together(together, cached(together.shape(), 8), requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_same_text(got.answers[i], alone[i], fmt::format("{}, batched, {}", words, i));
    }
  }
}

// Those that do not compact at the prompt's end hold the shared blocks once.
TEST(PrefixCache, FullCachesHoldTheSystemPromptOnce) {
  const std::vector<Request> requests = five_users({}, 8);
  WatchedModel model;
  const Together got = run_together(model, cached(model.shape(), 8), requests);
  EXPECT_EQ(got.blocks.all - got.blocks.distinct, 4u * (kSystem / 16) * 6);
  // Although nothing was there when they came: who comes second waits for what the first computes.
  int64_t rows = 0;
  for (const Answer& a : got.answers) {
    rows += a.result.prompt_tokens - a.result.cached_tokens + a.result.completion_tokens - 1;
  }
  EXPECT_EQ(got.rows, rows);
  EXPECT_EQ(got.metrics.prefix_hits, 4u * (kSystem / 16 * 16));
  WatchedModel plain;
  const Together without = run_together(plain, tiny_config(plain.shape(), 8), requests);
  EXPECT_EQ(without.blocks.all, without.blocks.distinct);
}

// A budget above the prompt: shared as long as nothing is evicted, copied by who compacts.
TEST(PrefixCache, CompactionLeavesSharedBlocksAlone) {
  for (const char* policy : {"random", "streaming", "snapkv-d", "tova", "rkv", "triattention"}) {
    KvOptions kv = {{"policy", policy}, {"budget", "200"}};
    if (std::string(policy) == "triattention") kv["protect_prompt"] = "off";
    if (std::string(policy) != "tova") kv["interval"] = "16";
    std::vector<Request> requests;
    for (uint64_t user = 0; user < 5; ++user) {
      // One after the other they run into their budgets.
      requests.push_back(compressed(question(user, 35), 20 + static_cast<int64_t>(user) * 20, kv));
    }
    requests.push_back(compressed(question(9, 35), 120, {}));  // shares, and never compacts
    const std::vector<Answer> alone = answers_alone(requests, {});
    WatchedModel model;
    const Together got = run_together(model, cached(model.shape(), 8), requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_same_text(got.answers[i], alone[i], fmt::format("{}, {}", policy, i));
    }
    EXPECT_GT(got.blocks.all, got.blocks.distinct + 6) << policy;
    EXPECT_GT(got.metrics.compactions, 0u) << policy;
    // What was published before is still there.
    EXPECT_GE(got.metrics.prefix_hits, 3u * 48) << policy;
  }
}

// A conversation goes on: its prompt is found again although the answer was compressed, and under
// the full policy the answer is, too.
TEST(PrefixCache, FollowUpTurnsHitThePromptAgain) {
  for (const KvOptions& kv : every_policy()) {
    if (!shares(kv)) continue;
    WatchedModel model;
    auto engine = EngineCore::start(model, cached(model.shape(), 2));
    ASSERT_TRUE(engine.ok()) << engine.status();
    Request r = compressed(question(1), 40, kv);
    for (int turn = 0; turn < 3; ++turn) {
      const std::vector<Answer> alone = answers_alone({r}, {});
      const Answer got = answer(**engine, r);
      expect_same_text(got, alone[0], fmt::format("{}, turn {}", words_of(kv), turn));
      const auto before = static_cast<int64_t>(r.tokens.size());
      if (turn > 0) {
        EXPECT_GE(got.result.cached_tokens, kSystem / 16 * 16 - 128) << words_of(kv);
        EXPECT_GT(got.result.cached_tokens, 0) << words_of(kv);
        if (kv.at("policy") == "full") {
          EXPECT_GE(got.result.cached_tokens, before - 30 - 16);
        }
      }
      r.tokens.insert(r.tokens.end(), got.tokens.begin(), got.tokens.end());
      const auto more = prompt_of(30, static_cast<uint64_t>(turn) + 7, 160);
      r.tokens.insert(r.tokens.end(), more.begin(), more.end());
    }
  }
}

// Pools that are too small for all, with and without entries in the way.
TEST(PrefixCache, PressureChangesNoAnswer) {
  for (const KvOptions& kv : every_policy()) {
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 8; ++i) {
      auto tokens = prompt_of(6 + static_cast<int64_t>(i * 9), i / 3, 160);
      requests.push_back(compressed(std::move(tokens), 110, kv, i % 2 * (i + 1)));
    }
    const std::vector<Answer> alone = answers_alone(requests, {});
    WatchedModel model;
    EngineConfig config = tiny_config(model.shape(), 8, 6 * 12, 190);
    config.prefix_caching = true;
    const Request first = compressed(prompt_of(100, 77, 160), 20, {});
    const Together got = run_together(model, config, requests, &first);
    for (size_t i = 0; i < got.answers.size(); ++i) {
      expect_same_text(got.answers[i], alone[i], fmt::format("{}, request {}", words_of(kv), i));
    }
    EXPECT_GT(got.metrics.prefix_reclaimed, 0u) << words_of(kv);
  }
}

TEST(PrefixCache, SaltsKeepTenantsApart) {
  WatchedModel model;
  auto engine = EngineCore::start(model, cached(model.shape(), 2));
  ASSERT_TRUE(engine.ok()) << engine.status();
  Request r = compressed(question(1), 2, {});
  EXPECT_EQ(answer(**engine, r).result.cached_tokens, 0);
  EXPECT_GT(answer(**engine, r).result.cached_tokens, 0);
  r.cache_salt = "tenant";
  EXPECT_EQ(answer(**engine, r).result.cached_tokens, 0);
  EXPECT_GT(answer(**engine, r).result.cached_tokens, 0);
}

TEST(PrefixCache, PromptLogprobsAreComputed) {
  WatchedModel model;
  auto engine = EngineCore::start(model, cached(model.shape(), 2));
  ASSERT_TRUE(engine.ok()) << engine.status();
  Request r = compressed(question(1), 2, {});
  answer(**engine, r);
  r.sampling.prompt_logprobs = 1;
  const Answer scored = answer(**engine, r);
  EXPECT_EQ(scored.result.cached_tokens, 0);
  EXPECT_EQ(scored.result.prompt_logprobs.size(), r.tokens.size());
  EXPECT_TRUE(scored.result.kv.cache_bypass);
  EXPECT_EQ(scored.result.kv.cache_note, "prompt_logprobs needs every row of the prompt");
}

// Blocks from before the first request of quest have no bounds of their keys.
TEST(PrefixCache, QuestNeverMeetsBlocksWithoutBounds) {
  const KvOptions quest = {{"policy", "quest"}, {"budget", "48"}, {"select_exempt", "1"}};
  const Request plain = compressed(question(1), 30, {}),
                sparse = compressed(question(1), 30, quest);
  const std::vector<Answer> alone = answers_alone({plain, sparse}, {});
  WatchedModel model;
  auto engine = EngineCore::start(model, cached(model.shape(), 2));
  ASSERT_TRUE(engine.ok()) << engine.status();
  expect_same_text(answer(**engine, plain), alone[0], "full");
  for (int i = 0; i < 2; ++i) {
    const Answer got = answer(**engine, sparse);
    expect_same_text(got, alone[1], fmt::format("quest {}", i));
    EXPECT_EQ(got.result.cached_tokens > 0, i > 0);
  }
}

// Old entries leave without anybody coming by.
TEST(PrefixCache, ExpiresInAnIdleEngine) {
  WatchedModel model;
  EngineConfig config = cached(model.shape(), 2);
  config.prefix_cache_ttl_s = 0.001;
  auto engine = EngineCore::start(model, config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  answer(**engine, compressed(question(1), 2, {}));
  while ((*engine)->metrics().prefix_entries > 0) std::this_thread::yield();
  const EngineMetrics m = (*engine)->metrics();
  EXPECT_EQ(m.blocks_cached, 0);
  EXPECT_GE(m.prefix_expired, static_cast<uint64_t>(kSystem / 16));
}

TEST(PrefixCache, CapBoundsTheBytes) {
  WatchedModel model;
  EngineConfig config = cached(model.shape(), 2);
  config.prefix_cache_memory_bytes = uint64_t{5} * 6 * 2 * 4 * 16 * 16;  // five entries
  auto engine = EngineCore::start(model, config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  answer(**engine, compressed(question(1), 2, {}));
  EXPECT_EQ((*engine)->metrics().blocks_cached, 5 * 6);
  EXPECT_EQ(answer(**engine, compressed(question(2), 2, {})).result.cached_tokens, 5 * 16);
}

// Every type of cached keys and values, centred and rotated ones too.
TEST(PrefixCache, HitsAreExactInEveryCacheType) {
  for (const DType type :
       {DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::int8, DType::int4}) {
    for (const char* policy : {"full", "streaming"}) {
      const KvOptions kv = std::string(policy) == "full"
                               ? KvOptions{}
                               : KvOptions{{"policy", policy}, {"budget", "48"}};
      const auto answers = [&](bool on) {
        WatchedModel model;
        EngineConfig config = tiny_config(model.shape(), 2);
        config.prefix_caching = on;
        config.kv_format = KvFormat(type, type, 0);
        config.kv_format.hadamard_keys = type == DType::int4;
        config.kv_format.centred_keys = dtype_has_scales(type);
        auto engine = EngineCore::start(model, config);
        EXPECT_TRUE(engine.ok()) << engine.status();
        std::vector<Answer> out;
        for (const uint64_t user : {1, 1, 2}) {
          out.push_back(answer(**engine, compressed(question(user), 30, kv)));
          EXPECT_EQ(out.back().result.cached_tokens > 0, on && out.size() > 1);
        }
        return out;
      };
      const auto off = answers(false), on = answers(true);
      for (size_t i = 0; i < off.size(); ++i) {
        expect_same_text(on[i], off[i], fmt::format("{} {}", dtype_name(type), policy));
      }
    }
  }
}

// Layers with sliding windows, alone and beside full ones.
TEST(PrefixCache, WindowsAreExact) {
  for (const int window_layers : {3, 2}) {
    Json config = WatchedModel::config_of({});
    config["architectures"] = {"Qwen2ForCausalLM"};
    config["model_type"] = "qwen2";
    config["sliding_window"] = 40;
    config["use_sliding_window"] = true;
    config["max_window_layers"] = 3 - window_layers;
    const auto answers = [&](bool on) {
      WatchedModel model(config, tiny_tensors(config), 1);
      const auto& windows = model.shape().layer_window;
      EXPECT_EQ(std::count(windows.begin(), windows.end(), 40), window_layers);
      EngineConfig c = tiny_config(model.shape(), 4);
      c.prefix_caching = on;
      auto engine = EngineCore::start(model, c);
      EXPECT_TRUE(engine.ok()) << engine.status();
      std::vector<Answer> out;
      for (const uint64_t user : {1, 1, 2, 3}) {
        out.push_back(answer(**engine, compressed(question(user), 60, {})));
        EXPECT_EQ(out.back().result.cached_tokens > 0, on && out.size() > 1) << out.size();
      }
      return out;
    };
    const auto off = answers(false), on = answers(true);
    for (size_t i = 0; i < off.size(); ++i) {
      expect_same_text(on[i], off[i], fmt::format("{} windows, {}", window_layers, i));
    }
  }
}

}  // namespace
}  // namespace pagefold::testing
