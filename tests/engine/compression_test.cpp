// Compression through the whole engine: batches, unequal lengths, pauses, memory.
#include <fstream>

#include "engine/tiny_engine.h"

namespace pagefold::testing {
namespace {

class Heads : public ::testing::TestWithParam<TinyHeads> {};

// D09: every policy, batches around the sizes where batched paths change.
TEST_P(Heads, BatchesGiveTheAnswersOfBatchOne) {
  for (const KvOptions& kv : every_policy()) {
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 33; ++i) {
      requests.push_back(compressed(prompt_of(20 + static_cast<int64_t>(i * 37 % 60), i, 160), 18,
                                    kv, i % 2 * (i + 1)));
    }
    const std::vector<Answer> alone = answers_alone(requests, GetParam());
    for (const size_t batch : {2, 31, 32, 33}) {
      const std::vector<Request> some(requests.begin(),
                                      requests.begin() + static_cast<int64_t>(batch));
      const auto got = answers_together(some, GetParam(),
                                        [](const ModelShape& s) { return tiny_config(s, 64); });
      ASSERT_EQ(got.size(), batch);
      for (size_t i = 0; i < batch; ++i) {
        expect_same_answer(got[i], alone[i],
                           fmt::format("{}, batch {}, request {}", words_of(kv), batch, i));
      }
      if (HasFatalFailure()) break;
    }
  }
}

// D10: very unequal lengths together.
TEST_P(Heads, UnequalLengthsGiveTheirSoloAnswers) {
  for (const KvOptions& kv : every_policy()) {
    std::vector<Request> requests;
    for (const int64_t n : {7, 64, 1000, 65}) {
      requests.push_back(compressed(prompt_of(n, static_cast<uint64_t>(n), 160), 40, kv));
    }
    const std::vector<Answer> alone = answers_alone(requests, GetParam());
    const auto got = answers_together(requests, GetParam(),
                                      [](const ModelShape& s) { return tiny_config(s, 8); });
    ASSERT_EQ(got.size(), alone.size());
    for (size_t i = 0; i < got.size(); ++i)
      expect_same_answer(got[i], alone[i], fmt::format("{}, request {}", words_of(kv), i));
  }
}

std::string heads_name(const ::testing::TestParamInfo<TinyHeads>& h) {
  return fmt::format("{}of{}", h.param.kv_heads, h.param.heads);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Heads,
                         ::testing::Values(TinyHeads{4, 4}, TinyHeads{4, 2}, TinyHeads{4, 1}),
                         heads_name);

// How a prompt is cut decides nothing, not even when a chunk is a single row.
TEST(Chunks, ChangeNoAnswer) {
  for (const KvOptions& kv : every_policy()) {
    const std::vector<Request> requests = {compressed(prompt_of(193, 3, 160), 20, kv)};
    const auto at_once = answers_together(requests, {}, [](const ModelShape& s) {
      EngineConfig c = tiny_config(s, 8);
      c.max_num_batched_tokens = 256;
      return c;
    });
    const auto cut =
        answers_together(requests, {}, [](const ModelShape& s) { return tiny_config(s, 8); });
    expect_same_answer(cut[0], at_once[0], words_of(kv));
  }
}

// Acceptance 7: sixteen requests with policies of their own.
TEST(Neighbours, OfOtherPoliciesChangeNoAnswer) {
  std::vector<Request> requests;
  uint64_t i = 0;
  for (const KvOptions& kv : every_policy()) {
    ++i;
    requests.push_back(
        compressed(prompt_of(30 + static_cast<int64_t>(i * 53 % 150), i, 160), 60, kv, i));
  }
  const std::vector<Answer> alone = answers_alone(requests, {});
  const auto got =
      answers_together(requests, {}, [](const ModelShape& s) { return tiny_config(s, 32); });
  for (size_t r = 0; r < got.size(); ++r)
    expect_same_answer(got[r], alone[r], words_of(requests[r].kv));
}

// A pool too small for all: paused sequences are computed again through the same compactions.
TEST(Pauses, ChangeNoCompressedAnswer) {
  int compacted_again = 0;
  for (const KvOptions& kv : every_policy()) {
    // Short prompts: what grows later is what admission does not count.
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 8; ++i) {
      requests.push_back(
          compressed(prompt_of(6 + static_cast<int64_t>(i * 9), i, 160), 110, kv, i % 2 * (i + 1)));
    }
    const std::vector<Answer> alone = answers_alone(requests, {});
    EngineMetrics m;
    const auto got = answers_together(
        requests, {}, [](const ModelShape& s) { return tiny_config(s, 8, 6 * 12, 190); }, &m);
    ASSERT_EQ(got.size(), alone.size()) << words_of(kv);
    for (size_t i = 0; i < got.size(); ++i) {
      expect_same_answer(got[i], alone[i], fmt::format("{}, request {}", words_of(kv), i));
    }
    EXPECT_GT(m.preemptions, 0u) << words_of(kv);
    // Counters know each compaction once, as the answers do.
    uint64_t compactions = 0;
    double evicted = 0;
    for (const Answer& a : alone) {
      compactions += static_cast<uint64_t>(a.result.kv.compactions);
      evicted += a.result.kv.evicted_tokens * 6;  // tables
    }
    EXPECT_EQ(m.compactions, compactions) << words_of(kv);
    EXPECT_NEAR(static_cast<double>(m.evicted_slots), evicted, 1e-6) << words_of(kv);
    compacted_again += m.compactions_again > 0 ? 1 : 0;
  }
  // Mostly some were paused after they had been compacted.
  EXPECT_GE(compacted_again, 12);
}

// D08: the budget does what it says. One token after the compaction at the prompt's end.
TEST(Budget, DecidesWhatIsKept) {
  for (const char* policy : {"random", "streaming", "h2o", "tova", "snapkv", "pyramidkv", "adakv",
                             "snapkv-d", "rkv", "triattention"}) {
    int64_t last_slots = 0, last_blocks = 0;
    for (const int64_t budget : {176, 352, 704, 0}) {
      KvOptions kv = {{"policy", budget > 0 ? policy : "full"}};
      if (budget > 0) kv["budget"] = std::to_string(budget);
      if (budget > 0 && std::string(policy) == "triattention") kv["protect_prompt"] = "off";
      const auto got = answers_together({compressed(prompt_of(900, 5, 160), 2, kv)}, {},
                                        [](const ModelShape& s) { return tiny_config(s, 1); });
      ASSERT_EQ(got.size(), 1u);
      const KvUsage& u = got[0].result.kv;
      constexpr int64_t kTables = 6;
      const int64_t held = budget > 0 ? budget : 900;  // and the slot of the last token
      EXPECT_EQ(u.kept_slots, (held + 1) * kTables) << policy << " " << budget;
      EXPECT_EQ(u.compactions, budget > 0 ? 1 : 0) << policy;
      EXPECT_EQ(u.budget, budget) << policy;
      EXPECT_NEAR(u.evicted_tokens, 901 - (held + 1), 1e-9) << policy;
      const std::string name = policy;
      if (name != "pyramidkv" && name != "adakv") {
        EXPECT_EQ(u.blocks, (held + 1 + 15) / 16 * kTables) << policy << " " << budget;
      }
      EXPECT_EQ(u.freed_blocks, (901 + 15) / 16 * kTables - u.blocks) << policy;
      EXPECT_GT(u.kept_slots, last_slots);
      EXPECT_GT(u.blocks, last_blocks);
      last_slots = u.kept_slots;
      last_blocks = u.blocks;
    }
  }
}

// The rows that a window policy observes end before a chat template's suffix, which stays.
TEST(Windows, EndBeforeTheTemplatesSuffix) {
  using Rows = std::vector<std::pair<int64_t, int64_t>>;
  const auto observed = [](KvOptions kv, int64_t suffix_begin) {
    WatchedModel model;
    Rows rows;
    model.before_forward = [&](const StepBatch& b) {
      const SeqRows& s = b.seqs[0];
      if (s.signals == nullptr || s.signals->observe == nullptr) return;
      const Observation& o = *s.signals->observe;
      const int64_t first = o.first_position + o.first_row;
      if (o.n_rows > 0 && first < 100) rows.emplace_back(first, first + o.n_rows);
    };
    auto engine = EngineCore::start(model, tiny_config(model.shape(), 1));
    EXPECT_TRUE(engine.ok()) << engine.status();
    Request r = compressed(prompt_of(100, 5, 160), 3, std::move(kv));
    r.suffix_begin = suffix_begin;
    EXPECT_GE(answer(**engine, r).result.kv.evicted_tokens, 100 - 48);
    return rows;
  };
  const KvOptions snapkv = {{"policy", "snapkv"}, {"budget", "48"}, {"window", "8"}};
  EXPECT_EQ(observed(snapkv, 0), (Rows{{92, 100}}));
  EXPECT_EQ(observed(snapkv, 95), (Rows{{87, 95}}));
  EXPECT_EQ(observed(snapkv, 68), (Rows{{60, 64}, {64, 68}}));  // over a step's end
  KvOptions off = snapkv;
  off["before_suffix"] = "off";
  EXPECT_EQ(observed(off, 95), (Rows{{92, 100}}));
  const KvOptions d = {{"policy", "snapkv-d"}, {"budget", "48"}, {"window", "8"}, {"recent", "8"}};
  EXPECT_EQ(observed(d, 95), (Rows{{87, 95}}));
  // Nothing else would keep it: then it is observed.
  EXPECT_EQ(observed(d, 90), (Rows{{92, 100}}));
  EXPECT_EQ(observed({{"policy", "tova"}, {"budget", "48"}}, 95), (Rows{{99, 100}}));
}

TEST(Wishes, WrongOnesAreRefusedAtOnce) {
  WatchedModel model;
  EngineConfig config = tiny_config(model.shape(), 1);
  config.allow_packing_off = false;
  auto engine = EngineCore::start(model, config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::pair<KvOptions, const char*> cases[] = {
      {{{"policy", "h3o"}}, "known policies: full, random"},
      {{{"policy", "h2o"}, {"bugdet", "9"}}, "known keys: policy, budget"},
      {{{"policy", "random"}, {"budget", "35"}}, "35 is below the 36 slots"},
      {{{"policy", "triattention"}, {"calibration", "x"}}, "known: auto, self"},
      {{{"policy", "h2o"}, {"packing", "off"}}, "use order, fill or block"},
  };
  for (const auto& [kv, message] : cases) {
    const auto g = (*engine)->submit(compressed({1, 2, 3}, 2, kv));
    EXPECT_EQ(g.status().code(), absl::StatusCode::kInvalidArgument) << words_of(kv);
    EXPECT_NE(message_of(g.status()).find(message), std::string::npos) << g.status();
  }
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  uint64_t kib = 0;
  while (file >> word) {
    if (word == "VmRSS:") file >> kib;
  }
  return kib << 10;
}

struct Memory {
  uint64_t rss = 0, committed = 0;
  int64_t held_blocks = 0;
};

// 8 sequences of 1,000 tokens: what the process holds after 128 steps with all of them decoding.
Memory memory_after_decoding(const KvOptions& kv) {
  WatchedModel model({4, 4, 64}, 2);
  Memory memory;
  std::binary_semaphore all_submitted{0};
  int steps = -1;
  const uint64_t before = resident_bytes();
  model.before_forward = [&](const StepBatch& batch) {
    if (steps < 0) all_submitted.acquire();
    steps = batch.seqs.size() == 8 && batch.tokens.size() == 8 ? steps + 1 : 0;
    if (steps != 128) return;
    memory.rss = resident_bytes() - std::min(before, resident_bytes());
    memory.committed = model.kv_resident_bytes();
    for (const SeqRows& s : batch.seqs) {
      for (int t = 0; t < 12; ++t) memory.held_blocks += (s.tables[t].len + 1 + 15) / 16;
    }
  };
  EngineConfig config = tiny_config(model.shape(), 8, 20000);
  config.max_num_batched_tokens = 256;
  auto engine = EngineCore::start(model, config);
  EXPECT_TRUE(engine.ok()) << engine.status();
  std::vector<std::shared_ptr<Generation>> running;
  for (uint64_t i = 0; i < 8; ++i) {
    auto g = (*engine)->submit(compressed(prompt_of(800, i, 160), 180, kv));
    EXPECT_TRUE(g.ok()) << g.status();
    running.push_back(*g);
  }
  all_submitted.release();
  for (const auto& g : running) drain(*g);
  return memory;
}

// At least 95 % of what was evicted, less the reserve, leaves the process within 128 steps.
TEST(Release, EvictedMemoryLeavesTheProcess) {
  constexpr uint64_t kBlockBytes = 2 * 4 * 16 * 64;
  const KvOptions tenth = {{"policy", "streaming"}, {"budget", "80"}, {"interval", "16"}};
  const Memory small = memory_after_decoding(tenth);
  const Memory full = memory_after_decoding({{"policy", "full"}});
  ASSERT_GT(small.held_blocks, 0);
  ASSERT_GT(full.held_blocks, 8 * small.held_blocks);
  const uint64_t held = static_cast<uint64_t>(small.held_blocks) * kBlockBytes;
  const uint64_t all = static_cast<uint64_t>(full.held_blocks) * kBlockBytes;
  constexpr uint64_t kReserve = 8 * 12 * 2 * kBlockBytes;  // a block or two for each table
  EXPECT_GE(full.committed, all);
  // What is not worth a system call (1 MiB) may stay on top.
  EXPECT_LE(small.committed, held + kReserve + held / 20 + (1 << 20));
  EXPECT_GE(static_cast<double>(full.rss) - static_cast<double>(small.rss),
            0.95 * static_cast<double>(all - held - kReserve))
      << "full " << full.rss << ", compressed " << small.rss;
  std::printf(
      "RSS %.1f MiB full, %.1f MiB compressed; committed %.1f and %.1f, held %.1f and %.1f\n",
      static_cast<double>(full.rss) / (1 << 20), static_cast<double>(small.rss) / (1 << 20),
      static_cast<double>(full.committed) / (1 << 20),
      static_cast<double>(small.committed) / (1 << 20), static_cast<double>(all) / (1 << 20),
      static_cast<double>(held) / (1 << 20));
}

}  // namespace
}  // namespace pagefold::testing
