// What a compaction costs beside the moving of bytes: scoring, selection and the layout of moves
// for the default model's shape (30 layers x 3 KV heads, 9 query heads) at 2,048 + 128 slots a
// table.
#include <benchmark/benchmark.h>

#include <memory>

#include "kv/compression.h"
#include "kv/registry.h"

namespace pagefold {
namespace {

KvModel default_shape() {
  KvModel m;
  m.n_layers = 30;
  m.n_heads = 9;
  m.n_kv_heads = 3;
  m.head_dim = 64;
  m.context_length = 8192;
  for (int f = 0; f < 32; ++f) m.inv_freq.push_back(1.0 / (1 + f * f));
  return m;
}

void plan_and_apply(benchmark::State& state, const char* policy, const char* packing) {
  const KvModel model = default_shape();
  const CacheShape shape{model.n_layers, model.n_kv_heads, model.block_size, {}};
  KvOptions words = {{"policy", policy}, {"packing", packing}, {"interval", "128"}};
  if (std::string_view(policy) == "triattention") words["protect_prompt"] = "off";
  const auto parsed = parse_kv_options(words, {}, model, {}, 0);
  const auto kv = std::make_shared<const KvPlan>(*parsed);
  BlockPool pool(90 * 200);
  SequenceCache cache(shape, 2176);
  SequenceCompression c(model, kv, 2176, 2176, 2176);
  Compactor compactor(model);
  MovePlan plan;
  std::vector<BlockId> freed;
  uint32_t noise = 1;
  const auto random = [&] {
    noise = noise * 1664525u + 1013904223u;
    return static_cast<float>(noise >> 8) * 0x1p-24f;
  };
  int64_t rows = 2176;
  for (auto _ : state) {
    state.PauseTiming();
    if (!cache.reserve(pool, rows)) state.SkipWithError("no blocks");
    c.begin_step(cache, rows);
    cache.commit(pool, rows, freed);
    c.end_step(rows);
    for (int t = 0; t < model.n_tables(); ++t) {
      float* mass = c.signals().mass(t);
      for (int64_t s = 0; mass != nullptr && s < c.signals().slots(t); ++s) mass[s] += random();
    }
    const bool keys = compactor.query(c, cache).kind != KeyScore::none;
    for (int t = 0; keys && t < model.n_tables(); ++t) {
      const ScoredKeys& k = compactor.scored()[t];
      for (int64_t i = 0; i < k.rows * k.stride; ++i) k.logits[i] = random();
    }
    freed.clear();
    state.ResumeTiming();
    if (!compactor.plan(c, cache, pool, plan)) state.SkipWithError("no blocks");
    compactor.apply(c, cache, pool, plan, freed);
    rows = 128;
  }
  cache.free_all(pool, freed);
}

BENCHMARK_CAPTURE(plan_and_apply, streaming_order, "streaming", "order");
BENCHMARK_CAPTURE(plan_and_apply, h2o_fill, "h2o", "fill");
BENCHMARK_CAPTURE(plan_and_apply, h2o_order, "h2o", "order");
BENCHMARK_CAPTURE(plan_and_apply, triattention_fill, "triattention", "fill");
BENCHMARK_CAPTURE(plan_and_apply, triattention_order, "triattention", "order");
BENCHMARK_CAPTURE(plan_and_apply, kvcompress_order, "kvcompress", "order");
BENCHMARK_CAPTURE(plan_and_apply, tova_fill, "tova", "fill");

// h2o's step: one slot goes for one that comes, in every table.
void h2o_step(benchmark::State& state) {
  const KvModel model = default_shape();
  const CacheShape shape{model.n_layers, model.n_kv_heads, model.block_size, {}};
  const auto kv =
      std::make_shared<const KvPlan>(*parse_kv_options({{"policy", "h2o"}}, {}, model, {}, 0));
  BlockPool pool(90 * 200);
  SequenceCache cache(shape, 2176);
  SequenceCompression c(model, kv, 2048, 2048, 2176);
  Compactor compactor(model);
  MovePlan plan;
  std::vector<BlockId> freed;
  int64_t rows = 2048;
  for (auto _ : state) {
    if (!cache.reserve(pool, rows)) state.SkipWithError("no blocks");
    c.begin_step(cache, rows);
    cache.commit(pool, rows, freed);
    c.end_step(rows);
    rows = 1;
    if (!c.due(cache)) continue;
    if (!compactor.plan(c, cache, pool, plan)) state.SkipWithError("no blocks");
    compactor.apply(c, cache, pool, plan, freed);
    freed.clear();
  }
  cache.free_all(pool, freed);
}
BENCHMARK(h2o_step);

}  // namespace
}  // namespace pagefold

BENCHMARK_MAIN();
