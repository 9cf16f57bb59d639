// Conversations that are kept between two turns, under every policy.
#include <filesystem>
#include <thread>

#include "engine/answer_watch.h"
#include "engine/tiny_engine.h"

namespace pagefold::testing {
namespace {

KvOptions named(KvOptions kv, const std::string& session = "s") {
  kv["session"] = session;
  return kv;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Talk {
  std::vector<Answer> turns;
  EngineMetrics metrics;
};

// Three turns; each prompt is everything said before and something new.
Talk talk(const KvOptions& kv, EngineConfig config_of(const ModelShape&), bool crowd = false,
          const Json& model_config = WatchedModel::config_of({})) {
  WatchedModel model(model_config, tiny_tensors(model_config), 1);
  auto engine = EngineCore::start(model, config_of(model.shape()));
  EXPECT_TRUE(engine.ok()) << engine.status();
  Talk out;
  std::vector<int32_t> said = prompt_of(90, 1, 160);
  for (uint64_t turn = 0; turn < 3; ++turn) {
    std::vector<std::shared_ptr<Generation>> others;
    for (uint64_t i = 0; crowd && i < 3; ++i)
      others.push_back(
          *(*engine)->submit(compressed(prompt_of(40 + 9 * static_cast<int64_t>(i), i + 50, 160),
                                        30, {{"policy", "streaming"}, {"budget", "48"}})));
    Answer a = answer(**engine, compressed(said, 30, kv, turn % 2 * 5));
    for (const auto& g : others) drain(*g);
    said = joined(joined(std::move(said), a.tokens), prompt_of(25, turn + 10, 160));
    out.turns.push_back(std::move(a));
  }
  out.metrics = (*engine)->metrics();
  return out;
}

EngineConfig roomy(const ModelShape& s) {
  EngineConfig c = tiny_config(s, 8);
  c.session_bytes = uint64_t{1} << 30;
  return c;
}
EngineConfig roomy_and_cached(const ModelShape& s) {
  EngineConfig c = roomy(s);
  c.prefix_caching = true;
  return c;
}
EngineConfig small_steps(const ModelShape& s) {
  EngineConfig c = roomy(s);
  c.max_num_batched_tokens = 9;
  return c;
}

TEST(Sessions, TurnsReadOnlyWhatIsNewUnderEveryPolicy) {
  for (const KvOptions& kv : every_policy()) {
    SCOPED_TRACE(words_of(kv));
    const Talk t = talk(named(kv), roomy);
    int64_t read = 0;
    for (size_t i = 0; i < t.turns.size(); ++i) {
      const GenerationResult& r = t.turns[i].result;
      EXPECT_EQ(r.kv.session, i == 0 ? "new" : "continued");
      EXPECT_EQ(r.cached_tokens, read);  // everything but the last token, whose keys were not made
      read = r.prompt_tokens + r.completion_tokens - 1;
    }
    EXPECT_EQ(t.metrics.sessions, 1);
    EXPECT_EQ(t.metrics.sessions_continued, 2u);
    EXPECT_EQ(t.metrics.blocks_used, t.metrics.session_blocks);
    EXPECT_EQ(t.metrics.session_blocks, t.turns.back().result.kv.blocks);
    // What is kept stays within the budget from turn to turn.
    const KvUsage& last = t.turns.back().result.kv;
    if (last.budget > 0 && kv.at("policy") != "snapkv" && last.policy != "pyramidkv" &&
        last.policy != "adakv" && last.policy != "triattention") {
      EXPECT_LE(last.kept_tokens, static_cast<double>(last.budget) + 30);
    }
    // The same alone, in a crowd, with a prefix cache and cut into small steps.
    const Talk crowd = talk(named(kv), roomy, true), cached = talk(named(kv), roomy_and_cached),
               small = talk(named(kv), small_steps);
    for (size_t i = 0; i < t.turns.size(); ++i) {
      expect_same_text(crowd.turns[i], t.turns[i], fmt::format("crowd, turn {}", i));
      expect_same_text(cached.turns[i], t.turns[i], fmt::format("cached, turn {}", i));
      expect_same_text(small.turns[i], t.turns[i], fmt::format("small steps, turn {}", i));
    }
    if (!kv.empty() && kv.at("policy") != "full") continue;
    // Nothing was evicted: the answers are those of prompts that were read anew.
    const Talk anew = talk(kv, roomy);
    for (size_t i = 0; i < t.turns.size(); ++i)
      expect_same_text(t.turns[i], anew.turns[i], fmt::format("anew, turn {}", i));
    EXPECT_EQ(anew.turns[1].result.kv.session, "");
  }
}

// Layers with a sliding window keep what the next turn can still see, alone and beside full ones.
TEST(Sessions, WindowsGoOnUnderEveryPolicy) {
  for (const int window_layers : {3, 2}) {
    Json config = WatchedModel::config_of({});
    config["architectures"] = {"Qwen2ForCausalLM"};
    config["model_type"] = "qwen2";
    config["sliding_window"] = 40;
    config["use_sliding_window"] = true;
    config["max_window_layers"] = 3 - window_layers;
    for (const KvOptions& kv : every_policy()) {
      const std::string& policy = kv.at("policy");
      if (window_layers == 3 && policy != "full") continue;  // nothing is left to compress
      if (policy == "pyramidkv" || policy == "adakv" || policy == "random") continue;  // as snapkv
      SCOPED_TRACE(fmt::format("{} windows, {}", window_layers, words_of(kv)));
      const Talk t = talk(named(kv), roomy, false, config);
      for (size_t i = 0; i < t.turns.size(); ++i)
        EXPECT_EQ(t.turns[i].result.kv.session, i == 0 ? "new" : "continued");
      const Talk cached = talk(named(kv), roomy_and_cached, true, config),
                 small = talk(named(kv), small_steps, false, config);
      for (size_t i = 0; i < t.turns.size(); ++i) {
        expect_same_text(cached.turns[i], t.turns[i], fmt::format("cached, turn {}", i));
        expect_same_text(small.turns[i], t.turns[i], fmt::format("small steps, turn {}", i));
      }
      if (kv.at("policy") != "full") continue;
      const Talk anew = talk(kv, roomy, false, config);
      for (size_t i = 0; i < t.turns.size(); ++i) {
        EXPECT_EQ(t.turns[i].tokens, anew.turns[i].tokens) << i;
        expect_same_text(t.turns[i], anew.turns[i], fmt::format("anew, turn {}", i));
      }
    }
  }
}

class Kept : public ::testing::Test {
 protected:
  void start(EngineConfig config) {
    engine_ = *EngineCore::start(model_, config);
    first_ = answer(*engine_, compressed(prompt_of(40, 1, 160), 12, named(kv_)));
    said_ = joined(joined(prompt_of(40, 1, 160), first_.tokens), prompt_of(9, 2, 160));
  }
  Answer anew(const std::vector<int32_t>& tokens) {
    return answer(*engine_, compressed(tokens, 12, kv_));
  }
  WatchedModel model_;
  KvOptions kv_ = {{"policy", "streaming"}, {"budget", "32"}, {"sinks", "4"}};
  std::unique_ptr<EngineCore> engine_;
  Answer first_;
  std::vector<int32_t> said_;
};

TEST_F(Kept, WhatDiffersIsReadAnewAndSaysWhy) {
  start(roomy(model_.shape()));
  said_[17] ^= 1;
  const Answer other = answer(*engine_, compressed(said_, 12, named(kv_)));
  EXPECT_EQ(other.result.kv.session,
            "reread: the prompt differs from the conversation at token 17");
  EXPECT_EQ(other.result.cached_tokens, 0);
  expect_same_answer(other, anew(said_), "read anew");
  // That turn is what is kept now; other options do not suit it.
  said_ = joined(joined(said_, other.tokens), prompt_of(5, 3, 160));
  KvOptions more = named(kv_);
  more["budget"] = "40";
  EXPECT_EQ(answer(*engine_, compressed(said_, 12, more)).result.kv.session,
            "reread: other kv options than the turn before");
  EXPECT_EQ(
      answer(*engine_, compressed(said_, 12, more)).result.kv.session,
      "reread: the prompt differs from the conversation at token " + std::to_string(said_.size()));
  Request salted = compressed(said_, 12, more);
  salted.cache_salt = "another tenant";
  EXPECT_EQ(answer(*engine_, salted).result.kv.session, "new");
  EXPECT_EQ(engine_->metrics().sessions, 2);
  Request scored = compressed(said_, 12, more);
  scored.sampling.prompt_logprobs = 1;
  EXPECT_EQ(answer(*engine_, scored).result.kv.session,
            "reread: prompt_logprobs needs every row of the prompt");
}

TEST_F(Kept, KeepMayGrowFromTurnToTurn) {
  kv_["keep"] = "0:8";
  start(roomy(model_.shape()));
  kv_["keep"] = "0:8,50:58";
  const Answer a = answer(*engine_, compressed(said_, 40, named(kv_)));
  EXPECT_EQ(a.result.kv.session, "continued");
  EXPECT_EQ(a.result.kv.pinned_tokens, 16);
  EXPECT_EQ(a.result.kv.max_head, a.result.kv.kept_slots / 6);
  EXPECT_GE(a.result.kv.kept_tokens, 48.0);
}

// A thought leaves the cache at the end of its turn, and the next prompt comes without it: what is
// attended to then is what a prompt without it holds, at the positions of the first reading.
TEST(Sessions, ThoughtsAreDroppedUnderEveryPolicy) {
  constexpr int32_t kOpen = 7, kClose = 8, kBlank = 9;
  for (const KvOptions& kv : every_policy()) {
    if (kv.count("packing") > 0 && kv.at("packing") == "off") continue;
    SCOPED_TRACE(words_of(kv));
    for (const bool cache : {false, true}) {
      WatchedModel model;
      EngineConfig c = cache ? roomy_and_cached(model.shape()) : roomy(model.shape());
      auto engine = *EngineCore::start(model, c);
      const auto ask = [&](std::vector<int32_t> tokens, const KvOptions& words) {
        Request r = compressed(std::move(tokens), 6, words);
        r.thinking = {kOpen, kClose, {kBlank}};
        r.suffix_begin = static_cast<int64_t>(r.tokens.size()) - 14;
        return answer(*engine, r);
      };
      // The template's suffix holds a thought, so that the answer need not make one.
      const std::vector<int32_t> thought = {kOpen, 30, 31, 32, 33, 34, 35, 36, 37, kClose, kBlank};
      std::vector<int32_t> visible = prompt_of(100, 3, 160);
      std::vector<int64_t> dropped;
      for (uint64_t turn = 0; turn < 3; ++turn) {
        std::erase_if(visible, [](int32_t t) { return t == kOpen || t == kClose; });
        auto prompt = joined(joined(visible, {1, 2, 3}), thought);
        const Answer a = ask(prompt, named(kv));
        ASSERT_EQ(a.result.kv.session, turn == 0 ? "new" : "continued");
        EXPECT_EQ(a.result.prompt_tokens, static_cast<int64_t>(prompt.size()));
        if (std::count(a.tokens.begin(), a.tokens.end(), kClose) > 0) break;  // one of its own
        visible = joined(joined(joined(visible, {1, 2, 3}), a.tokens), prompt_of(20, turn, 160));
        std::erase_if(visible, [](int32_t t) { return t == kOpen || t == kClose; });
        // Slots that a full cache holds: everything but the thoughts so far and the last token.
        if (kv.count("policy") == 0 || kv.at("policy") == "full") {
          EXPECT_EQ(a.result.kv.kept_tokens,
                    static_cast<double>(a.result.prompt_tokens + a.result.completion_tokens - 1));
        }
      }
      EXPECT_GE(engine->metrics().sessions_continued, 1u);
    }
  }
}

// Ends an answer after so many tokens, of which so many are shown.
class WatchOf final : public AnswerWatch {
 public:
  WatchOf(int64_t ends_after, int64_t shown) : left_(ends_after), shown_(shown) {}
  bool ends_with(int32_t) override { return --left_ == 0; }
  int64_t shown_tokens() const override { return shown_; }

 private:
  int64_t left_;
  const int64_t shown_;
};

// A stop string ends the answer on the engine's thread; what the client saw of it goes on.
TEST(Sessions, StoppedAnswersKeepWhatWasShown) {
  for (const KvOptions& kv : every_policy()) {
    if (kv.count("packing") > 0 && kv.at("packing") == "off") continue;
    for (const auto& [made, shown] : {std::pair{20, 17}, {9, 8}, {12, 12}, {5, 0}}) {
      if (made != 20 && kv.at("policy") != "full" && kv.at("policy") != "h2o") continue;
      SCOPED_TRACE(fmt::format("{} {} of {}", words_of(kv), shown, made));
      std::vector<Answer> first, second;
      for (const bool crowd : {false, true}) {
        WatchedModel model;
        auto engine = *EngineCore::start(
            model, crowd ? roomy_and_cached(model.shape()) : roomy(model.shape()));
        std::vector<std::shared_ptr<Generation>> others;
        for (uint64_t i = 0; crowd && i < 3; ++i)
          others.push_back(*engine->submit(compressed(prompt_of(30, i + 50, 160), 40, {})));
        std::vector<int32_t> said = prompt_of(90, 1, 160);
        Request r = compressed(said, 200, named(kv));
        r.watch = std::make_shared<WatchOf>(made, shown);
        first.push_back(answer(*engine, r));
        EXPECT_EQ(first.back().result.reason, FinishReason::stop);
        ASSERT_EQ(first.back().tokens.size(), static_cast<size_t>(made));
        auto seen = first.back().tokens;
        seen.resize(static_cast<size_t>(shown));
        said = joined(joined(said, seen), prompt_of(25, 10, 160));
        second.push_back(answer(*engine, compressed(said, 30, named(kv))));
        const GenerationResult& result = second.back().result;
        EXPECT_EQ(result.kv.session, "continued");
        EXPECT_EQ(result.cached_tokens, 90 + std::min(shown, made - 1));
        EXPECT_EQ(result.prompt_tokens, static_cast<int64_t>(said.size()));
        if (kv.at("policy") == "full") {
          EXPECT_EQ(result.kv.kept_tokens, static_cast<double>(said.size() + 29));
        }
        for (const auto& g : others) drain(*g);
      }
      EXPECT_EQ(first[0].tokens, first[1].tokens);
      expect_same_text(second[1], second[0], "in a crowd");
    }
  }
}

TEST_F(Kept, TwoAtOnceBothAnswer) {
  start(roomy(model_.shape()));
  const auto a = *engine_->submit(compressed(said_, 12, named(kv_)));
  const auto b = *engine_->submit(compressed(said_, 12, named(kv_)));
  const Answer first = drain(*a), second = drain(*b);
  EXPECT_EQ(first.result.kv.session, "continued");
  EXPECT_TRUE(second.result.kv.session == "new" ||
              second.result.kv.session.starts_with("reread: the prompt"))
      << second.result.kv.session;
  expect_same_text(second, anew(said_), "the second reads its prompt");
  EXPECT_EQ(engine_->metrics().sessions, 1);
}

TEST_F(Kept, CancelledAnswersKeepNothing) {
  start(roomy(model_.shape()));
  const auto g = *engine_->submit(compressed(said_, 1000, named(kv_)));
  g->wait();
  g->cancel();
  drain(*g);
  EXPECT_EQ(engine_->metrics().sessions, 0);
  EXPECT_EQ(engine_->metrics().blocks_used, 0);
}

TEST_F(Kept, ExpiresInAnIdleEngine) {
  EngineConfig c = roomy(model_.shape());
  c.session_ttl_s = 0.001;
  start(c);
  while (engine_->metrics().sessions > 0) std::this_thread::yield();
  EXPECT_EQ(engine_->metrics().blocks_used, 0);
  EXPECT_EQ(engine_->metrics().sessions_expired, 1u);
  EXPECT_EQ(answer(*engine_, compressed(said_, 2, named(kv_))).result.kv.session, "new");
}

TEST_F(Kept, TheCapBoundsTheBytes) {
  EngineConfig c = roomy(model_.shape());
  const uint64_t block = 2 * 4 * 16 * 16;
  c.session_bytes = 2 * 6 * 4 * block;  // of two sessions of up to 64 tokens
  start(c);
  for (const char* name : {"b", "c", "d"}) {
    answer(*engine_, compressed(prompt_of(40, 9, 160), 12, named(kv_, name)));
    EXPECT_LE(engine_->metrics().session_blocks, 2 * 6 * 4);
  }
  EXPECT_EQ(engine_->metrics().sessions, 2);
  EXPECT_EQ(engine_->metrics().sessions_reclaimed, 2u);
  answer(*engine_, compressed(prompt_of(300, 9, 160), 12, named({}, "too long")));
  EXPECT_EQ(engine_->metrics().sessions, 2);
}

// Conversations that begin alike share blocks: they are counted once, and so does the cap.
TEST(Sessions, SharedBlocksCountOnce) {
  WatchedModel model;
  EngineConfig c = roomy_and_cached(model.shape());
  const uint64_t block = 2 * 4 * 16 * 16;
  c.session_bytes = 6 * (8 + 4) * block;  // 128 tokens of a common start, and 4 blocks a table
  auto engine = *EngineCore::start(model, c);
  const std::vector<int32_t> start = prompt_of(128, 1, 160);
  for (uint64_t i = 0; i < 4; ++i) {
    answer(*engine,
           compressed(joined(start, prompt_of(9, i + 5, 160)), 3, named({}, std::to_string(i))));
    const EngineMetrics m = engine->metrics();
    EXPECT_EQ(m.sessions, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(m.session_blocks, 6 * (8 + static_cast<int64_t>(i) + 1));
    EXPECT_EQ(m.session_blocks, m.blocks_used);
  }
  answer(*engine, compressed(joined(start, prompt_of(9, 9, 160)), 3, named({}, "one more")));
  EXPECT_EQ(engine->metrics().sessions, 4);
  EXPECT_EQ(engine->metrics().sessions_reclaimed, 1u);
  EXPECT_EQ(engine->metrics().session_blocks, 6 * 12);
}

// Sessions give way before anybody is paused, and before the pool looks full to a newcomer.
TEST(Sessions, GiveWayBeforeAnybodyIsPaused) {
  WatchedModel model;
  EngineConfig c = tiny_config(model.shape(), 8, 6 * 20, 300);
  c.session_bytes = uint64_t{1} << 30;
  c.spill_dir = std::filesystem::temp_directory_path().string();
  c.spill_bytes = uint64_t{1} << 30;
  auto engine = *EngineCore::start(model, c);
  for (uint64_t i = 0; i < 4; ++i)
    answer(*engine, compressed(prompt_of(60, i, 160), 10, named({}, std::to_string(i))));
  EXPECT_GE(engine->metrics().sessions, 3);
  EXPECT_EQ(answer(*engine, compressed(prompt_of(30, 7, 160), 250, {})).tokens.size(), 250u);
  const EngineMetrics m = engine->metrics();
  EXPECT_EQ(m.preemptions, 0u);
  EXPECT_GE(m.sessions_reclaimed, 3u);
  // Many that grow, all with sessions: pauses, drops, and all of them end with their solo answers.
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 12; ++i)
    requests.push_back(
        compressed(prompt_of(10 + static_cast<int64_t>(i) * 5, i, 160), 100,
                   i % 2 ? KvOptions{{"policy", "h2o"}, {"budget", "48"}} : KvOptions{}));
  const std::vector<Answer> alone = answers_alone(requests, {});
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<Generation>> running;
    for (size_t i = 0; i < requests.size(); ++i) {
      Request r = requests[i];
      r.kv["session"] = fmt::format("{}", i % 5);
      running.push_back(*engine->submit(r));
    }
    for (size_t i = 0; i < running.size(); ++i)
      expect_same_text(drain(*running[i]), alone[i], fmt::format("request {}", i));
  }
  EXPECT_GT(engine->metrics().preemptions, 0u);
  EXPECT_EQ(engine->metrics().spill_used, 0u);
}

// A pool that just holds the longest conversation read in chunks: what a turn had not evicted yet
// counts, and whoever does not fit is read anew.
TEST(Sessions, ATurnThatThePoolCannotHoldIsReadAnew) {
  WatchedModel model;
  const KvOptions kv = {{"policy", "snapkv"},    {"budget", "40"},        {"window", "8"},
                        {"prefill_evict", "on"}, {"prefill_chunk", "32"}, {"session", "s"}};
  EngineConfig c = tiny_config(model.shape(), 2, 6 * 10, 400);
  c.session_bytes = uint64_t{1} << 30;
  c.kv = {{"policy", "streaming"},
          {"budget", "40"},
          {"interval", "8"},
          {"prefill_evict", "on"},
          {"prefill_chunk", "32"}};
  auto engine = EngineCore::start(model, c);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const char* want[] = {"new", "reread: the pool cannot hold it with what the turn before kept",
                        "continued"};
  std::vector<int32_t> said = prompt_of(60, 1, 160);
  for (uint64_t turn = 0; turn < 3; ++turn) {
    const Answer a = answer(**engine, compressed(said, turn == 0 ? 90 : 30, kv));
    EXPECT_EQ(a.result.reason, FinishReason::length);
    EXPECT_EQ(a.result.kv.session, want[turn]);
    said = joined(joined(std::move(said), a.tokens), prompt_of(40, turn + 10, 160));
  }
}

TEST(Sessions, BadNamesAreRefused) {
  WatchedModel model;
  auto engine = *EngineCore::start(model, roomy(model.shape()));
  EXPECT_FALSE(engine->check(compressed({1, 2}, 2, named({}, std::string(257, 'x')))).ok());
  EXPECT_TRUE(engine->check(compressed({1, 2}, 2, named({}, std::string(256, 'x')))).ok());
  EXPECT_FALSE(engine->check(compressed({1, 2}, 2, named({}, ""))).ok());
  EXPECT_FALSE(engine->check(compressed({1, 2}, 2, {{"drop_thinking", "maybe"}})).ok());
}

}  // namespace
}  // namespace pagefold::testing
