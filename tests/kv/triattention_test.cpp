#include "kv/policies/triattention_math.h"

#include "kv/support/cases.h"

namespace pagefold {
namespace {

using namespace testing;  // NOLINT

CalibrationStats stats_of(const Json& file, const KvModel& model) {
  CalibrationStats s;
  s.n_layers = model.n_layers;
  s.n_heads = model.n_heads;
  s.bands = model.bands();
  s.inv_freq = model.inv_freq;
  s.rows = 1;
  for (const Json& layer : file["layers"]) {
    for (const Json& head : layer["q_stats"]) {
      for (const float v : floats(head["q_mean_real"])) s.re.push_back(v);
      for (const float v : floats(head["q_mean_imag"])) s.im.push_back(v);
      for (const float v : floats(head["q_abs_mean"])) s.abs.push_back(v);
    }
  }
  s.finish();
  return s;
}

void z_scores(const float* logits, int64_t n, float* z) {
  std::vector<float> weights(static_cast<size_t>(n));
  z_weights(nullptr, n, weights.data());
  const ZScale scale = z_scale(logits, weights.data(), n);
  for (int64_t i = 0; i < n; ++i) z[i] = (logits[i] - scale.mean) * scale.inverse;
}

// What a backend computes from the coefficients for one key.
float key_score(const KeyCoefficientBuffer& c, const KvModel& m, int layer, int head,
                const std::vector<float>& k, bool half) {
  const size_t bands = static_cast<size_t>(m.bands());
  const size_t heads = static_cast<size_t>(m.n_layers * m.n_heads);
  const size_t row = static_cast<size_t>(layer * m.n_heads + head) * bands;
  float best = -INFINITY, norm = 0;
  for (int set = 0; set < c.sets; ++set) {
    float sum = 0;
    norm = 0;
    for (size_t f = 0; f < bands; ++f) {
      const float re = half ? k[f] : k[2 * f], im = half ? k[f + bands] : k[2 * f + 1];
      const size_t w = static_cast<size_t>(set) * heads * bands + row + f;
      sum += c.w_re[w] * re + c.w_im[w] * im;
      norm += c.e[row + f] * std::sqrt(re * re + im * im);
    }
    best = std::max(best, sum);
  }
  return best + norm;
}

KvModel case_model(double theta) {
  KvModel m = small_model(2, 4, 2, 8);
  for (int f = 0; f < 4; ++f) m.inv_freq[static_cast<size_t>(f)] = std::pow(theta, -f / 4.0);
  return m;
}

TEST(TriattentionCase, ScoresOfFoldedPhasesInBothLayouts) {
  const Json file = load_case("triattention_score");
  ASSERT_EQ(file["score_cases"].size(), 9u);
  for (const Json& one : file["score_cases"]) {
    KvModel m = case_model(one["rope_theta"].get<double>());
    const CalibrationStats stats = stats_of(file, m);
    TriattentionFold fold;
    fold.max = one["aggregation"] == "max";
    fold.offsets = one["offsets"].get<std::vector<int64_t>>();
    fold.next_pos = one["round_start"];
    fold.attention_scaling = one["attention_scaling"];
    fold.trig = !one["disable_trig"].get<bool>();
    fold.mlr = !one["disable_mlr"].get<bool>();
    EXPECT_EQ(triattention_offsets(fold.offsets.back()), fold.offsets);
    KeyCoefficientBuffer c;
    triattention_fold(stats.view(), m, fold, c);
    EXPECT_EQ(c.sets, fold.max ? static_cast<int>(fold.offsets.size()) : 1);
    for (const bool half : {true, false}) {
      const Json& keys = one[half ? "k_cached_half" : "k_cached_interleaved"];
      for (int h = 0; h < 4; ++h) {
        const auto head = static_cast<size_t>(h);
        std::vector<float> raw, z(12);
        for (const Json& k : keys[head / 2]) {
          raw.push_back(key_score(c, m, one["layer"].get<int>(), h, floats(k), half));
        }
        expect_near(raw, one["expect"]["raw_per_qhead"][head], 1e-4, 0);
        z_scores(raw.data(), 12, z.data());
        expect_near(z, one["expect"]["z_biased_per_qhead"][head], 1e-4, 0);
        // Reference: the sample deviation is a factor.
        for (float& v : z) v *= std::sqrt(11.0f / 12.0f);
        expect_near(z, one["expect"]["z_unbiased_per_qhead"][head], 1e-4, 0);
      }
    }
    // The policy: z per query head, then the maximum over the group.
    const KvPlan plan = plan_of(m, {{"policy", "triattention"}, {"protect_prompt", "off"}});
    for (size_t kv = 0; kv < 2; ++kv) {
      std::vector<float> logits;
      for (size_t g = 0; g < 2; ++g) {
        for (const float v : floats(one["expect"]["raw_per_qhead"][kv * 2 + g])) {
          logits.push_back(v);
        }
      }
      const ScoredKeys keys{logits.data(), 12, nullptr};
      SlotSignals s;
      s.n = 12;
      s.keys = &keys;
      std::vector<float> out(12);
      plan.policy->scores({plan.params, 0, static_cast<int>(kv), 2, 44, 0}, s, out.data());
      expect_near(out, one["expect"]["group_max_z_biased_per_kvhead"][kv], 1e-4, 0);
    }
  }
}

// Two layers whose KV heads hold the case's 12 positions each, in slot order.
struct Selection {
  Selection()
      : model(case_model(1e4)), world(model, 64), cache(world.shape), signals(model, {}, 64) {
    std::vector<BlockId> freed;
    EXPECT_TRUE(cache.reserve(world.pool, 44));
    signals.extend(cache.tables(), 0, 44);
    cache.commit(world.pool, 44, freed);
    const Json positions = file["score_cases"][1]["positions"];
    std::vector<std::vector<int32_t>> kept;
    for (int t = 0; t < 4; ++t) kept.push_back(ints(positions[static_cast<size_t>(t % 2)]));
    MovePlan plan;
    lay_out_moves(Packing::order, model, cache, world.pool, kept, plan);
    EXPECT_TRUE(cache.take_copies(world.pool, plan));
    signals.apply(plan, model.block_size);
    cache.apply(world.pool, plan, freed);
    for (int t = 0; t < 4; ++t) {
      const Json& raw = t < 2 ? file["score_cases"][1]["expect"]["raw_per_qhead"]
                              : file["selection"]["raw_layer1_per_qhead"];
      for (size_t g = 0; g < 2; ++g) {
        const auto row = floats(raw[static_cast<size_t>(t % 2) * 2 + g]);
        logits[t].insert(logits[t].end(), row.begin(), row.end());
      }
      scored[t] = {logits[t].data(), 12, nullptr};
    }
  }
  ~Selection() {
    std::vector<BlockId> freed;
    cache.free_all(world.pool, freed);
  }
  std::vector<std::vector<int32_t>> select(KvWords words, int64_t n_prompt = 1) {
    words["policy"] = "triattention";
    words.emplace("sinks", "0");
    words.emplace("recent", "0");
    words.emplace("protect_prompt", "off");
    words.emplace("calibration", "self");
    KvPlan plan = plan_of(model, words);
    SlotSelector selector(model);
    ScheduleState state{n_prompt, n_prompt, 44, 0};
    plan.stats = std::make_shared<CalibrationStats>();  // no hard prefix
    KvPlan settled = plan;
    settled.params = PolicyParams();
    for (const ParamSpec& s : plan.policy->params()) {
      settled.params.set(s.key, plan.params.get(s.key));
    }
    selector.select(settled, state, cache, signals, scored);
    scores = selector.scores();
    return selector.kept();
  }
  Json file = load_case("triattention_score");
  KvModel model;
  World world;
  SequenceCache cache;
  SequenceSignals signals;
  std::vector<float> logits[4];
  ScoredKeys scored[4];
  std::vector<std::vector<float>> scores;
};

TEST(TriattentionCase, Selection) {
  Selection s;
  const Json& want = s.file["selection"];
  const auto heads = [&](const char* key) { return sets(want[key]); };
  auto kept = s.select({{"budget", "6"}});
  for (size_t t = 0; t < 4; ++t) EXPECT_EQ(kept[t], heads("per_head_keep")[t % 2]);
  for (size_t h = 0; h < 2; ++h) {
    // The file has this mean of the layers with the sample deviation.
    std::vector<float> sample = s.scores[h];
    for (float& v : sample) v *= std::sqrt(11.0f / 12.0f);
    expect_near(sample, want["per_head_score"][h], 1e-4, 0);
  }
  kept = s.select({{"budget", "6"}, {"recent", "2"}});
  for (size_t t = 0; t < 4; ++t) EXPECT_EQ(kept[t], heads("per_head_keep_window2")[t % 2]);
  // A protected prompt comes on top of the budget.
  kept = s.select({{"budget", "4"}, {"protect_prompt", "on"}}, 2);
  for (size_t t = 0; t < 4; ++t) EXPECT_EQ(kept[t], heads("per_head_keep_prefill2_pinned")[t % 2]);
  kept = s.select({{"budget", "6"}, {"scope", "per_layer_per_head"}});
  for (size_t t = 0; t < 4; ++t) {
    EXPECT_EQ(kept[t], ints(want["per_layer_per_head_keep"][t / 2][t % 2]));
  }
}

TEST(TriattentionCase, UnionOverEverything) {
  // The case takes both KV heads at the same slots; here the heads hold different positions, so the
  // union is checked on scores by slot, as the case does.
  Selection s;
  std::vector<float> most(12, -INFINITY), z(12);
  for (const auto& logits : s.logits) {
    for (int g = 0; g < 2; ++g) {
      z_scores(logits.data() + 12 * g, 12, z.data());
      for (size_t i = 0; i < 12; ++i) most[i] = std::max(most[i], z[i]);
    }
  }
  std::vector<uint8_t> flags(12, 0);
  std::vector<int32_t> scratch;
  std::vector<int32_t> kept;
  pick_top(most.data(), flags.data(), 12, 6, scratch, kept);
  EXPECT_EQ(kept, ints(s.file["selection"]["union_keep"]));
}

TEST(TriattentionCase, CompactionMoves) {
  const Json want = load_case("triattention_score")["compaction"];
  for (const Json& one : want["per_head"]) {
    TableMoves moves;
    lay_out_table(Packing::order, ints(one["keep"]), 12, 4, nullptr, moves);
    std::vector<int32_t> source(6);
    std::iota(source.begin(), source.end(), 0);
    for (const SlotMove& m : moves.moves) source[static_cast<size_t>(m.to)] = m.from;
    EXPECT_EQ(source, ints(one["order_preserving"]["slot_source"]));
    EXPECT_EQ(moves.len_after, 6);
    lay_out_table(Packing::fill, ints(one["keep"]), 12, 4, nullptr, moves);
    std::vector<std::vector<int32_t>> pairs;
    for (const SlotMove& m : moves.moves) pairs.push_back({m.from, m.to});
    EXPECT_EQ(pairs, sets(one["fill_holes"]["moves_src_dst"]));
  }
}

TEST(Triattention, StatisticsFollowThePromptTailAndEveryDecodedRow) {
  const KvModel m = small_model(1, 2, 1);
  KvPlan plan = plan_of(m, {{"policy", "triattention"}, {"budget", "512"}});
  EXPECT_TRUE(plan.params.has("self"));
  World world(m, 256);
  SequenceCache cache(world.shape);
  SequenceCompression c(m, std::make_shared<const KvPlan>(plan), 300, 300, 512);
  std::vector<BlockId> freed;
  const auto step = [&](int64_t rows) {
    EXPECT_TRUE(cache.reserve(world.pool, rows));
    const Observation* o = c.begin_step(cache, rows);
    const std::pair<int, int> stats =
        o == nullptr ? std::pair{0, 0} : std::pair{o->stats_first_row, o->stats_rows};
    cache.commit(world.pool, rows, freed);
    c.end_step(rows);
    return stats;
  };
  EXPECT_EQ(step(100), (std::pair{0, 0}));
  EXPECT_EQ(step(100), (std::pair{72, 28}));  // rows 172 ... 299 are the last 128
  EXPECT_EQ(step(100), (std::pair{0, 100}));
  EXPECT_EQ(step(1), (std::pair{0, 1}));
  EXPECT_EQ(c.signals().query_sums().rows, 129);
  cache.free_all(world.pool, freed);
}

TEST(Triattention, YoungSelfStatisticsGetAHardPrefix) {
  const KvModel m = small_model(1, 2, 1);
  const KvPlan plan = plan_of(m, {{"policy", "triattention"}, {"budget", "2048"}});
  EXPECT_EQ(plan.sinks_at(5000, 4095), 128);
  EXPECT_EQ(plan.sinks_at(5000, 4096), 4);
  const KvPlan small = plan_of(m, {{"policy", "triattention"}, {"budget", "256"}});
  EXPECT_EQ(small.sinks_at(5000, 10), 64);
}

}  // namespace
}  // namespace pagefold
