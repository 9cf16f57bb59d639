// D08: more budget keeps more, takes more memory and recalls no less. A model of one layer, made by
// hand, recalls by attention alone: sixteen needles stand in a prompt of 8,000 filler tokens, each
// asks for the one before it, and an answer names them until one is missing.
#include <map>

#include "engine/tiny_engine.h"

namespace pagefold::testing {
namespace {

constexpr int64_t kHidden = 64, kRecallPrompt = 8000, kNeedles = 16;
constexpr int32_t kAsk = 16, kFiller = 17, kVocab = 64;

// Token t is the unit vector t. A needle n has key n and asks for n + 1; kAsk asks for needle 0.
// What attention finds is added to the residual stream eightfold. Dimensions from 16 on hardly
// rotate at this theta, so a key is the same at every position.
Json recall_config() {
  Json c = WatchedModel::config_of({1, 1, kHidden});
  c["vocab_size"] = kVocab;
  c["num_hidden_layers"] = 1;
  c["rope_theta"] = 1e12;
  return c;
}
std::vector<TinyTensor> recall_tensors(const Json& config) {
  std::vector<TinyTensor> all = tiny_tensors(config);
  for (TinyTensor& t : all) {
    const auto is = [&](const char* part) { return t.name.find(part) != std::string::npos; };
    std::fill(t.values.begin(), t.values.end(), is("norm") ? 1.0f : 0.0f);
    const auto set = [&](int64_t row, int64_t column, float v) {
      t.values[static_cast<size_t>(row * t.shape[1] + column)] = v;
    };
    for (int64_t i = 0; i < kHidden; ++i) {
      if (is("embed") || is("v_proj") || is("o_proj")) set(i, i, 1);
      if (is("k_proj") && i < kNeedles) set(16 + i, i, 2);
      if (is("q_proj") && i < kNeedles) set(16 + i, i == 0 ? kAsk : i - 1, 2);
    }
  }
  return all;
}

// Needle n ends at depth n: 0 near the prompt's end, the last near its beginning.
std::vector<int32_t> haystack() {
  std::vector<int32_t> tokens(kRecallPrompt);
  for (int64_t i = 0; i < kRecallPrompt; ++i) {
    tokens[static_cast<size_t>(i)] =
        kFiller + static_cast<int32_t>(mix(1, static_cast<uint64_t>(i)) % 40);
  }
  for (int64_t n = 0; n < kNeedles; ++n) {
    tokens[static_cast<size_t>(kRecallPrompt - 100 - n * 490)] = static_cast<int32_t>(n);
  }
  tokens.back() = kAsk;
  return tokens;
}

struct Seen {
  int recall = 0;
  KvUsage usage;
  uint64_t resident = 0;  // while answering, after what was freed had time to leave
};

class Recall : public ::testing::Test {
 protected:
  Seen ask(const KvOptions& kv) {
    WatchedModel model(recall_config(), recall_tensors(recall_config()), 1);
    Seen seen;
    model.before_forward = [&](const StepBatch& b) {
      if (b.positions[0] == kRecallPrompt + 20) seen.resident = model.kv_resident_bytes();
    };
    EngineConfig config = tiny_config(model.shape(), 1, 4000, kRecallPrompt + 64);
    config.max_num_batched_tokens = 512;
    auto engine = EngineCore::start(model, config);
    EXPECT_TRUE(engine.ok()) << engine.status();
    const Answer got = answer(**engine, compressed(haystack(), 24, kv));
    while (seen.recall < kNeedles && got.tokens[static_cast<size_t>(seen.recall)] == seen.recall)
      ++seen.recall;
    seen.usage = got.result.kv;
    return seen;
  }
};

TEST_F(Recall, RisesWithTheBudget) {
  const Seen full = ask({{"policy", "full"}});
  EXPECT_EQ(full.recall, kNeedles);
  const std::map<std::string, std::vector<int>> exact = {
      // Age alone: needle n is 100 + 490 n tokens old, four sinks and what was generated apart.
      {"streaming", {1, 2, 9}},
  };
  for (const char* policy : {"streaming", "h2o", "snapkv", "random", "triattention"}) {
    int last_recall = 0, i = 0;
    int64_t last_blocks = 0;
    uint64_t last_resident = 0;
    for (const int64_t budget : {256, 1024, 4096}) {
      SCOPED_TRACE(fmt::format("{} {}", policy, budget));
      KvOptions kv = {{"policy", policy}, {"budget", std::to_string(budget)}};
      if (std::string(policy) != "snapkv") kv["interval"] = "1000";
      if (std::string(policy) == "triattention") kv["protect_prompt"] = "off";
      const Seen seen = ask(kv);
      // One compaction at the prompt's end; 23 of the 24 answered tokens were computed since.
      EXPECT_EQ(seen.usage.compactions, 1);
      EXPECT_EQ(seen.usage.kept_slots, budget + 23);
      EXPECT_EQ(seen.usage.blocks, (budget + 23 + 15) / 16);
      EXPECT_GT(seen.usage.blocks, last_blocks);
      EXPECT_GT(seen.resident, last_resident);
      EXPECT_GE(seen.recall, last_recall);
      if (exact.contains(policy)) {
        EXPECT_EQ(seen.recall, exact.at(policy)[static_cast<size_t>(i)]);
      }
      last_recall = seen.recall, last_blocks = seen.usage.blocks, last_resident = seen.resident;
      ++i;
    }
    EXPECT_GT(full.usage.blocks, last_blocks);
    EXPECT_GT(full.resident, last_resident);
    EXPECT_GE(full.recall, last_recall);
  }
}

}  // namespace
}  // namespace pagefold::testing
