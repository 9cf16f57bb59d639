// What every policy with every budget rule and packing must hold, on MHA, GQA and MQA shapes and
// sequences of unequal lengths that share a pool.
#include <map>
#include <string>
#include <tuple>

#include "kv/support/world.h"
#include "kv/trace.h"

namespace pagefold {
namespace {

using namespace testing;  // NOLINT

struct Shape {
  const char* name;
  int heads, kv_heads;
};
constexpr Shape kShapes[] = {{"mha", 4, 4}, {"gqa", 4, 2}, {"mqa", 4, 1}};
constexpr const char* kPackings[] = {"order", "fill", "block", "off"};
constexpr int kLayers = 3;
constexpr int64_t kBudget = 96;

using Param = std::tuple<std::string, std::string>;

class KvContract : public ::testing::TestWithParam<Param> {
 protected:
  const std::string& policy() const { return std::get<0>(GetParam()); }
  const std::string& alloc() const { return std::get<1>(GetParam()); }
  const Shape& shape() const { return *shape_; }
  const std::string& packing() const { return packing_; }
  template <class F>
  void everywhere(F&& f) {
    for (const Shape& shape : kShapes) {
      for (const char* packing : kPackings) {
        SCOPED_TRACE(std::string(shape.name) + " packing " + packing);
        shape_ = &shape;
        packing_ = packing;
        f();
        if (HasFailure()) return;
      }
    }
  }
  const Shape* shape_ = nullptr;
  std::string packing_;

  KvWords words() const {
    KvWords w = {{"policy", policy()},
                 {"alloc", alloc()},
                 {"packing", packing()},
                 {"budget", std::to_string(kBudget)}};
    const PolicyDefaults d = find_policy(policy())->defaults();
    if (!d.drops_half && !d.once) w["interval"] = "16";
    if (policy() == "h2o") w["recent"] = "40";  // leaves room for whole blocks
    if (policy() == "triattention") {
      w["recent"] = "32";
      w["calibration"] = "self";
    }
    return w;
  }

  static int64_t total_live(const Life& life) { return life.cache.held_slots(); }

  // Right after a compaction.
  void check_totals(Life& life) {
    const KvModel& m = life.world_.model;
    const KvPlan& plan = life.compression.plan();
    const ScheduleState& s = life.compression.state();
    const int64_t pinned = plan.pinned_count(s.n_computed, s.n_prompt);
    const int64_t tables = m.n_tables(), bs = m.block_size;
    const int64_t total = (plan.budget_at(s.n_computed) + pinned) * tables;
    ASSERT_EQ(total, budget_total(plan, m, s.n_computed, s.n_prompt));
    if (plan.alloc->whole_blocks() && packing() != "off") {
      const int64_t blocks = (total + bs - 1) / bs;
      if (packing() == "block") {
        EXPECT_LE(life.cache.held_blocks(), blocks + tables);
      } else if (plan.defaults.drops_half) {
        EXPECT_LE(life.cache.held_blocks(), blocks);
      } else {
        EXPECT_EQ(life.cache.held_blocks(), blocks);
      }
    } else if (plan.defaults.drops_half && !plan.alloc->whole_blocks()) {
      EXPECT_LE(total_live(life), total + (packing() == "block" ? (bs - 1) * tables : 0));
    } else if (packing() == "block") {
      EXPECT_GE(total_live(life), total);
      EXPECT_LT(total_live(life), total + bs * tables);
    } else if (!plan.alloc->whole_blocks()) {
      EXPECT_EQ(total_live(life), total);
    }
    if (plan.alloc->even() && packing() != "block" && !plan.defaults.drops_half) {
      for (int t = 0; t < m.n_tables(); ++t) {
        EXPECT_EQ(life.cache.live_slots(t), plan.budget_at(s.n_computed) + pinned);
      }
    }
  }

  void check_protected(Life& life) {
    const KvPlan& plan = life.compression.plan();
    const ScheduleState& s = life.compression.state();
    const int64_t recent = plan.recent_at(s.n_computed);
    for (int t = 0; t < life.world_.model.n_tables(); ++t) {
      const auto kept = life.positions(t);
      const std::set<int32_t> set(kept.begin(), kept.end());
      for (int32_t p = 0; p < plan.sinks_at(s.n_computed, 4096); ++p)
        EXPECT_TRUE(set.count(p)) << "sink " << p;
      if (plan.recent_rule != RecentRule::rest) {
        for (int64_t p = s.n_computed - recent; p < s.n_computed; ++p) {
          EXPECT_TRUE(set.count(static_cast<int32_t>(p))) << "recent " << p;
        }
      }
      // Rows that no observation covers stay, or they would go first.
      for (int64_t p = s.window_end; s.n_computed == s.n_prompt && p < s.n_prompt; ++p) {
        EXPECT_TRUE(set.count(static_cast<int32_t>(p))) << "suffix " << p;
      }
      for (int32_t p = 0; p < s.n_prompt && p < s.n_computed; ++p) {
        EXPECT_TRUE(set.count(p) || !plan.pinned(p, s.n_prompt)) << "pinned " << p;
      }
      if (packing() == "order" || packing() == "block" || packing() == "off") {
        const int32_t* positions = life.compression.signals().positions(t);
        EXPECT_TRUE(std::is_sorted(positions, positions + life.cache.tables()[t].len));
      }
    }
  }

  void spans_and_chunks();
  void run(const KvWords& words, const std::vector<int64_t>& prompts, int64_t generated,
           int64_t chunk, int64_t suffix = 0) {
    const KvModel m = small_model(kLayers, shape().heads, shape().kv_heads);
    World world(m, 4096);
    // Tables are scored side by side, as the engine has it: no policy may share what it writes.
    ThreadPool threads(3);
    Compactor compactor(m, [&](int64_t n, UnitFn fn) {
      threads.run([&](int t, int all) {
        for (int64_t i = t; i < n; i += all) fn(i);
      });
    });
    int compactions = 0;
    {
      std::vector<std::unique_ptr<Life>> lives;
      std::vector<Footprint> peak, steady;
      for (size_t i = 0; i < prompts.size(); ++i) {
        const KvPlan plan = plan_of(m, words, prompts[i]);
        peak.push_back(peak_footprint(plan, m, prompts[i], generated + 1, chunk));
        steady.push_back(steady_footprint(plan, m, prompts[i], generated + 1));
        lives.push_back(std::make_unique<Life>(world, compactor, plan, prompts[i],
                                               static_cast<int64_t>(i), random_rows(i),
                                               random_keys(i), prompts[i] - suffix));
      }
      bool more = true;
      while (more) {
        more = false;
        for (size_t i = 0; i < lives.size(); ++i) {
          Life& life = *lives[i];
          const ScheduleState& s = life.compression.state();
          if (s.n_computed >= s.n_prompt + generated) continue;
          more = true;
          life.step(s.n_computed < s.n_prompt ? chunk : 1);
          EXPECT_LE(life.cache.held_blocks(), peak[i].blocks);
          EXPECT_LE(life.peak_blocks, peak[i].blocks) << "prompt " << s.n_prompt;
          if (!life.compacted) continue;
          ++compactions;
          check_totals(life);
          check_protected(life);
          life.check_contents();
          EXPECT_LE(life.cache.held_blocks(), steady[i].blocks);
        }
        if (HasFailure()) return;
      }
      for (auto& life : lives) life->check_contents();
      for (size_t i = 0; i < lives.size() && suffix == 0; ++i) {
        // Policies whose counts do not hang on scores: what the calculator says is what was held.
        const KvPlan plan = plan_of(m, words, prompts[i]);
        const SequenceTrace t = trace_sequence(plan, m, prompts[i], prompts[i] + generated, chunk);
        if (!t.exact) continue;
        EXPECT_EQ(t.peak.blocks, lives[i]->peak_blocks) << "prompt " << prompts[i];
        EXPECT_EQ(t.end.blocks, lives[i]->cache.held_blocks()) << "prompt " << prompts[i];
        EXPECT_EQ(t.end.slots, lives[i]->cache.held_slots()) << "prompt " << prompts[i];
      }
    }
    EXPECT_GT(compactions, 0);
    EXPECT_EQ(world.pool.free_count(), world.pool.total());
    world.pool.check_invariants();
  }
};

void KvContract::spans_and_chunks() {
  KvWords w = words();
  w["keep"] = "9:12,20:30";
  w["prefill_evict"] = "on";
  w["prefill_chunk"] = "64";
  w["protect_prompt"] = "off";
  if (policy() == "scissorhands") w["window"] = "48";
  if (packing() == "block" || alloc() == "global") w["budget"] = "176";
  run(w, {400, 230}, 60, 50);
}

TEST_P(KvContract, Holds) {
  everywhere([&] { run(words(), {200, 37, 111, 5}, 150, 70); });
}

TEST_P(KvContract, HoldsWithKeptSpansAndEvictionBetweenChunks) {
  everywhere([&] { spans_and_chunks(); });
}

TEST_P(KvContract, HoldsWithATemplatesSuffix) {
  const KvPlan plan = plan_of(small_model(1, 2, 1), {{"policy", policy()}});
  if (plan.policy->needs(plan.params).prompt != PromptRows::last) return;  // observes no window
  everywhere([&] { run(words(), {200, 111}, 20, 70, 7); });
}

std::vector<std::string> evicting() {
  std::vector<std::string> names;
  for (const Policy* p : all_policies()) {
    if (p->defaults().evicts) names.emplace_back(p->name());
  }
  return names;
}
std::vector<std::string> rules() {
  std::vector<std::string> names;
  for (const BudgetRule* b : all_budgets()) names.emplace_back(b->name());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Registry, KvContract,
                         ::testing::Combine(::testing::ValuesIn(evicting()),
                                            ::testing::ValuesIn(rules())),
                         [](const ::testing::TestParamInfo<Param>& param) {
                           std::string name =
                               std::get<0>(param.param) + "_" + std::get<1>(param.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pagefold
