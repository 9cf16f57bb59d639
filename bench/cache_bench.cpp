// Scoring, moving and releasing cached tokens: what one compaction of one sequence costs.
//   cache_bench --benchmark_filter=.   (PAGEFOLD_THREADS, default 2)
// Shape of the default model: 30 layers x 3 KV heads, head_dim 64, bfloat16, 2,176 slots a table.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

#include "backend/backend.h"
#include "base/half.h"

namespace pagefold {
namespace {

constexpr int kLayers = 30, kKvHeads = 3, kHeads = 9, kDim = 64, kSlots = 2176, kKept = 2048;
constexpr int kTables = kLayers * kKvHeads, kBlocks = kSlots / 16;
constexpr int32_t kBlockSlots = 16;

struct Cache {
  std::unique_ptr<Backend> backend;
  std::vector<BlockId> ids;
  std::vector<TableView> views;

  Cache() {
    CpuBackendOptions o;
    const char* threads = std::getenv("PAGEFOLD_THREADS");
    o.threads = threads != nullptr ? std::atoi(threads) : 2;
    backend = *make_cpu_backend(o);
    const auto n = static_cast<uint32_t>(kTables * kBlocks);
    if (!backend->init_kv({kLayers, kKvHeads, kDim, 16, DType::bf16, DType::bf16, n}).ok())
      std::abort();
    ids.resize(n);
    std::iota(ids.begin(), ids.end(), 0u);
    if (!backend->blocks_taken(ids).ok()) std::abort();
    for (int t = 0; t < kTables; ++t)
      views.push_back({ids.data() + t * kBlocks, kSlots, 0, nullptr});
  }
};

// Keys with a common direction, as a model's are: without it no key is like another, and all are
// searched. The bfloat16 layout (kernels/paged.h): [head_dim / 2][16][2], then the values.
void write_keys(Cache& c, float common) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> words(c.backend->block_bytes() / sizeof(uint16_t));
  for (const BlockId id : c.ids) {
    for (size_t i = 0; i < words.size(); ++i)
      words[i] = f32_to_bf16(normal(rng) + (i / 32 % 8 == 0 ? common : 0));
    c.backend->load_blocks({&id, 1}, {&kBlockSlots, 1},
                           reinterpret_cast<const std::byte*>(words.data()));
  }
}

std::vector<int32_t> survivors(int kept, uint32_t seed) {
  std::vector<int32_t> all(kSlots);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937(seed));
  all.resize(static_cast<size_t>(kept));
  std::sort(all.begin(), all.end());
  return all;
}

MovePlan plan_for(bool ordered, int kept) {
  MovePlan plan;
  for (int t = 0; t < kTables; ++t) {
    TableMoves m;
    m.layer = t / kKvHeads, m.head = t % kKvHeads;
    m.len_before = kSlots, m.len_after = kept;
    const auto keep = survivors(kept, static_cast<uint32_t>(t));
    if (ordered) {
      for (int32_t i = 0; i < kept; ++i)
        if (keep[static_cast<size_t>(i)] != i) m.moves.push_back({keep[static_cast<size_t>(i)], i});
    } else {
      auto from = std::lower_bound(keep.begin(), keep.end(), kept);
      for (int32_t hole = 0; from != keep.end(); ++hole)
        if (!std::binary_search(keep.begin(), keep.end(), hole)) m.moves.push_back({*from++, hole});
    }
    plan.tables.push_back(std::move(m));
  }
  return plan;
}

void move(benchmark::State& state, bool ordered) {
  Cache c;
  const MovePlan plan = plan_for(ordered, static_cast<int>(state.range(0)));
  for (auto _ : state) c.backend->move_slots(plan, c.views.data(), kKvHeads);
  state.counters["moves"] = static_cast<double>(plan.slots_moved());
}
BENCHMARK_CAPTURE(move, fill, false)->Arg(kKept)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(move, order, true)
    ->Arg(kKept)
    ->Arg(218)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void score_coefficients(benchmark::State& state) {
  Cache c;
  const int bands = kDim / 2, sets = static_cast<int>(state.range(0));
  const std::vector<float> w(static_cast<size_t>(sets * kLayers * kHeads * bands), 0.5f);
  KeyScoreQuery q;
  q.kind = KeyScore::coefficients;
  q.coefficients = {sets, w.data(), w.data(), w.data(), bands};
  std::vector<float> out(static_cast<size_t>(kHeads * kLayers * kSlots));
  std::vector<ScoredKeys> scored(kTables);
  for (size_t t = 0; t < kTables; ++t) scored[t] = {out.data() + t * 3 * kSlots, kSlots, nullptr};
  for (auto _ : state)
    c.backend->score_tables(q, {c.views.data(), kLayers, kHeads, kKvHeads, 1, true}, scored.data());
  state.SetBytesProcessed(state.iterations() * kTables * kSlots * kDim * 2);
}
BENCHMARK(score_coefficients)->Arg(1)->Arg(13)->UseRealTime()->Unit(benchmark::kMicrosecond);

void score_redundancy(benchmark::State& state) {
  Cache c;
  write_keys(c, static_cast<float>(state.range(0)));
  constexpr int kWindow = 8;
  std::vector<float> ring_data(static_cast<size_t>(kLayers * kWindow * kHeads * kDim), 0.1f);
  const QueryRing ring{ring_data.data(), kWindow};
  KeyScoreQuery q;
  q.kind = KeyScore::redundancy;
  q.ring = &ring;
  q.next_position = kSlots, q.window = kWindow, q.threshold = 0.5f;
  std::vector<float> out(size_t{kTables} * (kWindow + 1) * kSlots);
  std::vector<ScoredKeys> scored(kTables);
  for (size_t t = 0; t < kTables; ++t) {
    float* at = out.data() + t * (kWindow + 1) * kSlots;
    scored[t] = {at, kSlots, at + kWindow * kSlots};
  }
  for (auto _ : state)
    c.backend->score_tables(q, {c.views.data(), kLayers, kHeads, kKvHeads, 0.125f, true},
                            scored.data());
}
BENCHMARK(score_redundancy)
    ->ArgName("common")
    ->Arg(0)
    ->Arg(3)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Give all memory back and commit it again: 50 MB.
void release_and_commit(benchmark::State& state) {
  Cache c;
  for (auto _ : state) {
    c.backend->blocks_freed(c.ids);
    benchmark::DoNotOptimize(c.backend->release_kv(0, 1));
    if (!c.backend->blocks_taken(c.ids).ok()) std::abort();
  }
}
BENCHMARK(release_and_commit)->UseRealTime()->Unit(benchmark::kMicrosecond);
// The same with a reserve for all: only counting.
void free_and_take(benchmark::State& state) {
  Cache c;
  for (auto _ : state) {
    c.backend->blocks_freed(c.ids);
    benchmark::DoNotOptimize(c.backend->release_kv(uint64_t{1} << 40, 1));
    if (!c.backend->blocks_taken(c.ids).ok()) std::abort();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(c.ids.size()));
}
BENCHMARK(free_and_take)->UseRealTime()->Unit(benchmark::kMicrosecond);

// Plain reading of K and V, to compare with.
void read_all(benchmark::State& state) {
  std::vector<uint64_t> bytes(size_t{kTables} * kSlots * kDim * 4 / 8, 1);
  for (auto _ : state)
    benchmark::DoNotOptimize(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}));
}
BENCHMARK(read_all)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pagefold

BENCHMARK_MAIN();
