// D07: survivors must not pin the memory of what was evicted around them.
#include "engine/tiny_engine.h"

namespace pagefold::testing {
namespace {

constexpr int64_t kReclaimPrompt = 512, kSequences = 6, kReclaimTables = 6,
                  kBlockBytes = 2 * 4 * 16 * 64;

// Fills a pool, compresses everything to a quarter, and asks for what was freed. The prefix cache
// may keep its share of the prompts beside that, until somebody needs the room.
class Reclaim : public ::testing::TestWithParam<bool> {};

TEST_P(Reclaim, AQuarterOfTheTokensTakesAQuarterOfThePages) {
  for (const char* policy : {"random", "h2o", "snapkv-d", "streaming"}) {
    SCOPED_TRACE(policy);
    const KvOptions kv = {{"policy", policy}, {"budget", "128"}, {"interval", "16"}};
    WatchedModel model({4, 2, 64});
    EngineCore* core = nullptr;
    std::binary_semaphore all_submitted{0};
    int steps = 0, decode_steps = -1, waited = -1, held_blocks = 0;
    uint64_t filled = 0, resident = 0;
    std::shared_ptr<Generation> newcomer;
    const Request large = compressed(prompt_of(2100, 9, 160), 4, {{"policy", "full"}});
    model.before_forward = [&](const StepBatch& b) {
      if (steps++ == 0) all_submitted.acquire();
      filled = std::max(filled, model.kv_resident_bytes());
      const bool decoding = b.seqs.size() == kSequences && b.tokens.size() == kSequences;
      if (decoding && decode_steps < 33) ++decode_steps;
      if (decode_steps == 32) {
        resident = model.kv_resident_bytes();
        for (const SeqRows& s : b.seqs) {
          for (int t = 0; t < kReclaimTables; ++t) held_blocks += (s.tables[t].len + 15) / 16;
        }
        auto g = core->submit(large);
        EXPECT_TRUE(g.ok()) << g.status();
        if (g.ok()) newcomer = *g;
        ++decode_steps;
      } else if (newcomer != nullptr && waited < 0) {
        waited = b.seqs.size() == kSequences + 1 ? 0 : 1;
      }
    };
    // Room for all prompts whole, the watermark of admission, and little else.
    EngineConfig config =
        tiny_config(model.shape(), 16,
                    (kReclaimPrompt / 16 + 1) * kSequences * kReclaimTables * 103 / 100, 2200);
    config.max_num_batched_tokens = static_cast<int>(kReclaimPrompt * kSequences);
    config.prefix_caching = GetParam();
    const uint64_t cached = GetParam() ? config.kv_cache_memory_bytes / 4 : 0;
    // The engine waits in this one's only step until all others are there.
    const Request first = compressed({1}, 1, {{"policy", "full"}});
    auto engine = EngineCore::start(model, config);
    ASSERT_TRUE(engine.ok()) << engine.status();
    core = engine->get();
    const auto gate = core->submit(first);
    ASSERT_TRUE(gate.ok()) << gate.status();
    std::vector<std::shared_ptr<Generation>> running;
    for (uint64_t i = 0; i < kSequences; ++i) {
      auto g = core->submit(compressed(prompt_of(kReclaimPrompt, i, 160), 80, kv));
      ASSERT_TRUE(g.ok()) << g.status();
      running.push_back(*g);
    }
    all_submitted.release();
    for (const auto& g : running) EXPECT_EQ(drain(*g).result.reason, FinishReason::length);
    ASSERT_NE(newcomer, nullptr);
    EXPECT_EQ(drain(*newcomer).tokens.size(), 4u);
    EXPECT_EQ(waited, 0) << "the newcomer was not admitted at once";
    EXPECT_EQ(core->metrics().preemptions, 0u);

    constexpr uint64_t kFull = kReclaimPrompt / 16 * kSequences * kReclaimTables * kBlockBytes;
    EXPECT_GE(filled, kFull / 100 * 95);  // a look may come before the last prompt is whole
    // A quarter, and one block more for each sequence and table, which it is filling.
    EXPECT_LE(held_blocks * kBlockBytes,
              static_cast<int64_t>(kFull) / 4 + kSequences * kReclaimTables * kBlockBytes);
    // In pages: also the reserve for the next interval, and what is not worth a system call.
    const uint64_t reserve = kSequences * kReclaimTables * 2 * kBlockBytes;
    EXPECT_LE(resident,
              static_cast<uint64_t>(held_blocks) * kBlockBytes + cached + reserve + (1 << 20));
    EXPECT_LE(core->metrics().blocks_cached * kBlockBytes, static_cast<int64_t>(cached));
    EXPECT_EQ(core->metrics().prefix_reclaimed > 0, GetParam());
  }
}

// The same answers under every policy; memory in whole pages of 2 MiB, which leave when nothing is
// in them.
TEST(HugePages, AnswersAreThoseOfSmallPages) {
  constexpr uint64_t kHuge = 2 << 20;
  std::vector<Answer> answers[2];
  for (const bool huge : {false, true}) {
    WatchedModel model({4, 2, 64}, 2);
    EngineConfig config = tiny_config(model.shape(), 4);
    config.kv_huge_pages = huge;
    auto engine = EngineCore::start(model, config);
    ASSERT_TRUE(engine.ok()) << engine.status();
    for (const KvOptions& kv : every_policy()) {
      answers[huge].push_back(answer(**engine, compressed(prompt_of(300, 5, 160), 24, kv)));
      // Page bounds, which quest wants, lie in small pages.
      if (huge && model.page_bounds_bytes() == 0)
        EXPECT_EQ(model.kv_resident_bytes() % kHuge, 0u) << words_of(kv);
    }
    if (huge) EXPECT_LE(model.kv_resident_bytes(), 2 * kHuge);
  }
  for (size_t i = 0; i < answers[0].size(); ++i)
    expect_same_answer(answers[1][i], answers[0][i], words_of(every_policy()[i]));
}

INSTANTIATE_TEST_SUITE_P(PrefixCache, Reclaim, ::testing::Bool());

}  // namespace
}  // namespace pagefold::testing
