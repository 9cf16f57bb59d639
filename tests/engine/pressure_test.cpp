// Pools that are too small for all that runs: pauses, spilled or computed again, change no answer.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "engine/tiny_engine.h"

namespace pagefold::testing {
namespace {

std::string temp_folder() { return std::filesystem::temp_directory_path().string(); }

// Short prompts that grow: what grows is what optimistic admission does not count.
std::vector<Request> growing(const KvOptions& kv, uint64_t n = 8) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < n; ++i) {
    requests.push_back(compressed(prompt_of(6 + static_cast<int64_t>(i % 8 * 9), i, 160), 110, kv,
                                  i % 2 * (i + 1)));
  }
  return requests;
}

// A pool of `blocks` and room to spill.
EngineConfig spilling(const ModelShape& s, uint64_t blocks) {
  EngineConfig c = tiny_config(s, 8, blocks, 190);
  c.spill_dir = temp_folder();
  c.spill_bytes = uint64_t{1} << 30;
  return c;
}
EngineConfig tight(const ModelShape& s) { return spilling(s, 6 * 12); }
EngineConfig tight_and_cached(const ModelShape& s) {
  EngineConfig c = tight(s);
  c.prefix_caching = true;
  return c;
}
EngineConfig tight_without_room(const ModelShape& s) {
  EngineConfig c = tight(s);
  c.spill_bytes = 40000;  // a sequence or two
  return c;
}
EngineConfig guaranteed(const ModelShape& s) {
  EngineConfig c = tight(s);
  c.guaranteed_admission = true;
  return c;
}

void expect_text(const std::vector<Answer>& got, const std::vector<Answer>& want,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].result.reason, FinishReason::length) << got[i].result.error;
    ASSERT_EQ(got[i].tokens, want[i].tokens) << what << ", request " << i;
    EXPECT_EQ(got[i].result.kv.kept_slots, want[i].result.kv.kept_slots) << what;
    EXPECT_EQ(got[i].result.kv.compactions, want[i].result.kv.compactions) << what;
    EXPECT_EQ(got[i].result.kv.blocks_read, want[i].result.kv.blocks_read) << what;
  }
}

// Every policy, restored bit for bit: nothing is computed or compacted twice.
TEST(Spilling, ChangesNoAnswer) {
  int turn = 0;
  for (const KvOptions& kv : every_policy()) {
    const std::string what = words_of(kv);
    const std::vector<Request> requests = growing(kv);
    const std::vector<Answer> alone = answers_alone(requests, {});
    uint64_t compactions = 0;
    for (const Answer& a : alone) compactions += static_cast<uint64_t>(a.result.kv.compactions);
    EngineMetrics m;
    expect_text(answers_together(requests, {}, tight, &m), alone, what);
    EXPECT_GT(m.pauses_spilled, 0u) << what;
    EXPECT_EQ(m.pauses_recomputed + m.pauses_spilled, m.preemptions) << what;
    EXPECT_EQ(m.pauses_recomputed, 0u) << what;
    EXPECT_EQ(m.spill_read, m.spill_written) << what;
    EXPECT_EQ(m.spill_used, 0u) << what;
    EXPECT_EQ(m.compactions, compactions) << what;
    EXPECT_EQ(m.compactions_again, 0u) << what;

    expect_text(answers_together(requests, {}, tight_and_cached, &m), alone, what + "cached");
    EXPECT_GT(m.preemptions, 0u) << what;
    if (turn++ % 3 != 0) continue;

    // No room in the file: some are computed again, which is slower and the same.
    expect_text(answers_together(requests, {}, tight_without_room, &m), alone, what + "no room");
    EXPECT_GT(m.pauses_recomputed, 0u) << what;

    expect_text(answers_together(requests, {}, guaranteed, &m), alone, what + "guaranteed");
    EXPECT_EQ(m.preemptions, 0u) << what;
  }
}

// kv.elastic: budgets are lowered before anybody is paused; who did not opt in notices nothing.
TEST(Elastic, LowersBudgetsBeforeAnybodyIsPaused) {
  const Request door = greedy(prompt_of(1, 9, 160), 1);
  for (const KvOptions& kv : every_policy()) {
    const bool evicts = kv.at("policy") != "full" && kv.at("policy") != "quest";
    const bool once =
        kv.at("policy") == "snapkv" || kv.at("policy") == "pyramidkv" || kv.at("policy") == "adakv";
    const bool off = kv.count("packing") > 0 && kv.at("packing") == "off";
    if (kv.count("protect_prompt") == 0 && kv.at("policy") == "triattention") continue;
    SCOPED_TRACE(words_of(kv));
    KvOptions elastic = kv;
    if (evicts) elastic["budget"] = "96";
    elastic["elastic"] = "on";
    KvOptions plain = elastic;
    plain.erase("elastic");
    // The oldest opted in, the others did not.
    std::vector<Request> requests = {compressed(prompt_of(20, 1, 160), 150, elastic)};
    for (uint64_t i = 1; i < 4; ++i)
      requests.push_back(compressed(prompt_of(20, i, 160), 150, plain));
    const std::vector<Answer> alone = answers_alone(requests, {});
    EngineMetrics m, without;
    const auto pool = [](const ModelShape& s) { return spilling(s, 6 * 26); };
    const auto got = answers_together(requests, {}, pool, &m, &door);
    EXPECT_EQ(m.budgets_lowered > 0, evicts && !once && !off) << m.budgets_lowered;
    EXPECT_EQ(got[0].result.kv.elastic, m.budgets_lowered > 0);
    EXPECT_EQ(got[0].result.reason, FinishReason::length);
    if (m.budgets_lowered > 0) {
      EXPECT_LT(got[0].result.kv.budget, 96);
      EXPECT_LT(got[0].result.kv.kept_slots, alone[0].result.kv.kept_slots);
    }
    for (size_t i = 1; i < got.size(); ++i) {
      EXPECT_FALSE(got[i].result.kv.elastic);
      EXPECT_EQ(got[i].tokens, alone[i].tokens) << i;
    }
    // With room, opting in changes nothing.
    EXPECT_EQ(alone[0].tokens,
              answers_alone({compressed(prompt_of(20, 1, 160), 150, plain)}, {})[0].tokens);
    // All of them opted in: fewer pauses.
    for (Request& r : requests) r.kv = plain;
    answers_together(requests, {}, pool, &without, &door);
    for (Request& r : requests) r.kv = elastic;
    for (const Answer& a : answers_together(requests, {}, pool, &m, &door))
      EXPECT_EQ(a.result.reason, FinishReason::length);
    if (m.budgets_lowered > 0) EXPECT_LT(m.preemptions, std::max<uint64_t>(1, without.preemptions));
    EXPECT_EQ(m.blocks_used, 0);
  }
}

// Guaranteed admission with a prefix cache counts the copies that compaction may need.
TEST(Admission, GuaranteedNeverPauses) {
  for (const KvOptions& kv : every_policy()) {
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 8; ++i) {
      auto tokens = prompt_of(80, 7, 160);
      const auto own = prompt_of(10 + static_cast<int64_t>(i), i, 160);
      tokens.insert(tokens.end(), own.begin(), own.end());
      requests.push_back(compressed(std::move(tokens), 40 + static_cast<int64_t>(i * 5), kv));
    }
    const std::vector<Answer> alone = answers_alone(requests, {});
    EngineMetrics m;
    const auto got = answers_together(
        requests, {},
        [](const ModelShape& s) {
          EngineConfig c = tiny_config(s, 8, 6 * 30, 300);
          c.prefix_caching = c.guaranteed_admission = true;
          return c;
        },
        &m);
    expect_text(got, alone, words_of(kv));
    EXPECT_EQ(m.preemptions, 0u) << words_of(kv);
  }
}

// Acceptance 3 of the serving work, scaled down: 8 at a time on a pool for 4 of the longest, with
// compression on and off. Nothing starves: all of them end.
TEST(Pressure, ManyRequestsOnASmallPoolGetTheirSoloAnswers) {
  const KvOptions policies[] = {{},
                                {{"policy", "snapkv-d"}, {"budget", "48"}, {"interval", "16"}},
                                {{"policy", "streaming"}, {"budget", "64"}}};
  for (const KvOptions& kv : policies) {
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 90; ++i) {
      const auto length = static_cast<int64_t>(1 + mix(5, i) % 200);
      const auto prompt = 1 + length / 3;
      requests.push_back(compressed(prompt_of(prompt, i / 5, 160), length, kv, i % 3));
    }
    const std::vector<Answer> alone = answers_alone(requests, {});
    for (const bool cache : {false, true}) {
      WatchedModel model;
      EngineConfig c = tiny_config(model.shape(), 8, 4 * 6 * 17, 272);
      c.prefix_caching = cache;
      c.spill_dir = temp_folder();
      c.spill_bytes = uint64_t{1} << 30;
      auto engine = EngineCore::start(model, c);
      ASSERT_TRUE(engine.ok()) << engine.status();
      std::vector<std::shared_ptr<Generation>> running;
      for (const Request& r : requests) running.push_back(*(*engine)->submit(r));
      std::vector<Answer> got;
      for (const auto& g : running) got.push_back(drain(*g));
      expect_text(got, alone, words_of(kv) + (cache ? "cached" : ""));
      const EngineMetrics m = (*engine)->metrics();
      EXPECT_TRUE(!kv.empty() || m.preemptions > 0);
      EXPECT_EQ(m.spill_used, 0u);
      EXPECT_EQ(m.blocks_used, 0);
    }
  }
}

// The file descriptor of the spill file: open, and of a file that has no name.
int spill_descriptor() {
  for (const auto& e : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(e.path(), error).string();
    if (error || !target.starts_with(temp_folder()) || !target.ends_with("(deleted)")) continue;
    return std::stoi(e.path().filename().string());
  }
  return -1;
}

// Spilled bytes that cannot be read back cost time, not the answer.
TEST(Spilling, LostBytesAreComputedAgain) {
  const KvOptions kv = {{"policy", "h2o"}, {"budget", "48"}};
  const std::vector<Request> requests = growing(kv);
  const std::vector<Answer> alone = answers_alone(requests, {});
  WatchedModel model;
  std::binary_semaphore all_submitted{0};
  int steps = 0;
  model.before_forward = [&](const StepBatch&) {
    if (steps++ == 0) all_submitted.acquire();
    const int fd = spill_descriptor();
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::ftruncate(fd, 0), 0);
  };
  auto engine = EngineCore::start(model, tight(model.shape()));
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::vector<std::shared_ptr<Generation>> running;
  for (const Request& r : requests) running.push_back(*(*engine)->submit(r));
  all_submitted.release();
  std::vector<Answer> got;
  for (const auto& g : running) got.push_back(drain(*g));
  expect_text(got, alone, "lost");
  const EngineMetrics m = (*engine)->metrics();
  EXPECT_GT(m.pauses_spilled, 0u);
  EXPECT_EQ(m.spill_used, 0u);
}

// What is still published of a paused request is shared again, not read back.
TEST(Spilling, PublishedBlocksAreSharedAgain) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    auto tokens = prompt_of(64, 3, 160);
    tokens.push_back(static_cast<int32_t>(i));
    requests.push_back(compressed(std::move(tokens), 100, {}, i % 2 * (i + 1)));
  }
  const std::vector<Answer> alone = answers_alone(requests, {});
  EngineMetrics m;
  expect_text(answers_together(requests, {}, tight_and_cached, &m), alone, "shared");
  EXPECT_GT(m.pauses_spilled, 0u);
  EXPECT_LT(m.spill_read, m.spill_written);
  EXPECT_EQ(m.spill_used, 0u);
}

// A paused request that is cancelled leaves nothing in the file.
TEST(Spilling, CancelledRequestsLeaveTheFile) {
  FakeModel model;
  std::binary_semaphore all_submitted{0};
  std::vector<std::shared_ptr<Generation>> running;
  std::atomic<bool> cancelled{false};
  int64_t steps = 0;
  model.before_forward = [&](const StepBatch& b) {
    if (steps++ == 0) all_submitted.acquire();
    if (steps == 120 && b.seqs.size() < 8) {  // some are paused by now
      for (const auto& g : running) g->cancel();
      cancelled = true;
    }
  };
  EngineConfig config = small_config(4 * 16 * 3 / 2, 256);
  config.spill_dir = temp_folder();
  config.spill_bytes = 1 << 20;
  auto engine = start_engine(model, config);
  for (uint64_t i = 0; i < 8; ++i)
    running.push_back(*engine->submit(greedy(prompt_of(20, i), 150)));
  all_submitted.release();
  for (const auto& g : running) EXPECT_EQ(drain(*g).result.reason, FinishReason::cancelled);
  EXPECT_TRUE(cancelled);
  const EngineMetrics m = engine->metrics();
  EXPECT_GT(m.pauses_spilled, 0u);
  EXPECT_EQ(m.spill_used, 0u);
  EXPECT_EQ(m.blocks_used, 0);
}

TEST(Spilling, AFolderThatIsNotThereIsAnErrorAtTheStart) {
  FakeModel model;
  EngineConfig config = small_config();
  config.spill_dir = "/nowhere/at/all";
  const auto engine = EngineCore::start(model, config);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("/nowhere/at/all"), std::string::npos);
}

// What can never fit is refused at once, with both numbers.
TEST(Admission, WhatCanNeverFitIsRefused) {
  FakeModel model;
  const EngineConfig config = small_config(64, 256);
  EngineConfig larger = config;
  larger.kv = {{"policy", "streaming"}, {"budget", "64"}, {"interval", "16"}};
  larger.kv_cache_memory_bytes = uint64_t{40} * 4 * 16 * 8;
  auto engine = start_engine(model, larger);
  Request r = greedy(prompt_of(20, 1), 200);
  r.kv = {{"policy", "full"}};
  const auto refused = engine->submit(r);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(refused.status().message());
  EXPECT_NE(message.find("56 cache blocks"), std::string::npos) << message;
  EXPECT_NE(message.find("whole pool has 40"), std::string::npos) << message;
}

}  // namespace
}  // namespace pagefold::testing
