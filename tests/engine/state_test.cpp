// Pictures of a running engine: the map, the sequences, and that nobody waits for one in vain.
#include <gtest/gtest.h>

#include <future>

#include "engine/engine.h"
#include "engine/engine_test_util.h"

namespace pagefold {
namespace {

using namespace testing;
using Picture = std::shared_ptr<const EngineState>;

Picture picture(EngineCore& engine) {
  std::promise<Picture> promise;
  auto future = promise.get_future();
  engine.watch([&](Picture p) { promise.set_value(std::move(p)); });
  return future.get();
}

// Slots of the map that belong to the sequence, by the cells' percentages.
double slots_of(const EngineState& s, size_t sequence, int block_size) {
  double slots = 0;
  for (const BlockCell& c : s.cells) {
    if (c.owner == BlockCell::kFirstSequence + sequence) slots += c.fill / 100.0;
  }
  return slots * static_cast<double>(s.blocks_per_cell) * block_size;
}

TEST(EngineState, AnIdleEngineAnswersToo) {
  FakeModel model;
  auto engine = start_engine(model, small_config());
  const Picture first = picture(*engine);
  EXPECT_TRUE(first->sequences.empty());
  EXPECT_TRUE(first->cells.empty());
  EXPECT_EQ(first->metrics.blocks_used, 0);
  EXPECT_GE(picture(*engine)->serial, first->serial);
}

// A picture of every step but the last, which nobody asked for.
struct Filmed {
  explicit Filmed(KvOptions kv) {
    FakeModel model;
    std::unique_ptr<EngineCore> engine;
    model.before_forward = [&](const StepBatch&) {
      engine->watch([this](Picture p) { pictures.push_back(std::move(p)); });
    };
    engine = start_engine(model, config);
    Request r = pagefold::testing::greedy(prompt_of(40, 1), 200);
    r.id = "<b>first</b>";
    r.kv = std::move(kv);
    answer(*engine, std::move(r));
  }
  const EngineConfig config = small_config();
  std::vector<Picture> pictures;  // written by the engine's thread, read after its end
};

TEST(EngineState, TheMapHoldsWhatTheSequencesHold) {
  const Filmed film({});
  ASSERT_GE(film.pictures.size(), 2u);
  const EngineState* p = nullptr;  // the last with the sequence in it
  for (const Picture& one : film.pictures) {
    if (!one->sequences.empty()) p = one.get();
  }
  ASSERT_NE(p, nullptr);
  const SequenceState& s = p->sequences[0];
  EXPECT_EQ(s.id, "<b>first</b>");
  EXPECT_EQ(s.phase, SequencePhase::decode);
  EXPECT_EQ(s.prompt_tokens, 40);
  EXPECT_EQ(s.budget, 0);
  EXPECT_EQ(s.kept_slots, 4 * s.computed_tokens);
  EXPECT_EQ(s.blocks, s.full_blocks);
  EXPECT_EQ(p->metrics.blocks_used, s.blocks);
  EXPECT_EQ(p->blocks_per_cell, 1);
  int64_t owned = 0;
  for (const BlockCell& c : p->cells) owned += c.owner == BlockCell::kFirstSequence;
  EXPECT_EQ(owned, s.blocks);
  // A percentage is rounded down: under a slot of each cell is lost.
  EXPECT_NEAR(slots_of(*p, 0, film.config.block_size), static_cast<double>(s.kept_slots),
              0.16 * static_cast<double>(s.blocks));
}

TEST(EngineState, CompressionFreesCells) {
  const Filmed film({{"policy", "streaming"}, {"budget", "64"}, {"interval", "16"}});
  size_t compacted = 0;
  for (const Picture& p : film.pictures) {
    if (p->sequences.empty() || p->sequences[0].compactions < 2) continue;
    ++compacted;
    const SequenceState& s = p->sequences[0];
    EXPECT_EQ(s.policy, "streaming");
    EXPECT_EQ(s.budget, 64);
    EXPECT_LT(s.kept_slots, 4 * s.computed_tokens);
    EXPECT_LT(s.blocks, s.full_blocks);
    EXPECT_GT(p->metrics.compaction_freed_blocks, 0u);
  }
  EXPECT_GT(compacted, 0u);
}

}  // namespace
}  // namespace pagefold
