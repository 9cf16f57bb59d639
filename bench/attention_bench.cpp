// Paged attention on the shape of SmolLM2-135M (30 layers, 3 KV heads, 3 query heads each,
// head_dim 64). Blocks lie as the pool hands them out for a prompt that is read 512 tokens at a
// time: runs of 32, the tables in turn; "scattered" permutes all of them. Shares are of what the
// same binary measures on the same threads: sequential read bandwidth for decode, the vdpbf16ps
// peak for prefill. "reader" is the bandwidth of reading the blocks in table order. cpu_*: by
// processor time, per thread; the fair figures with one thread on a shared machine (waiting threads
// spin, so not with two). "compare" runs steps over two caches in turn: "ratio" is the median of
// the first type's time over the second's. "memory" and "scattered" decode over 640 MiB, which no
// processor cache holds.
//   build/release/bin/attention_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/kv_format.h"
#include "base/threads.h"
#include "bench/bandwidth.h"
#include "bench/peaks.h"
#include "kernels/attention_isa.h"

namespace pagefold::kernels {
namespace {

using bench::Arena;
using bench::cpu_seconds;
using bench::median_rate;
using bench::Rate;
using bench::read_bandwidth;
using bench::seconds;

struct Isa {
  const char* name;
  decltype(&scalar::kv_append) append;
  decltype(&scalar::attention_prepare_q) prepare_q;
  decltype(&scalar::attention_chunk) chunk;
  decltype(&scalar::attention_merge) merge;
  decltype(&scalar::attention_finish) finish;
};

constexpr Isa kScalar{"scalar",
                      scalar::kv_append,
                      scalar::attention_prepare_q,
                      scalar::attention_chunk,
                      scalar::attention_merge,
                      scalar::attention_finish};
constexpr Isa kAvx2{"avx2",
                    avx2::kv_append,
                    avx2::attention_prepare_q,
                    avx2::attention_chunk,
                    avx2::attention_merge,
                    avx2::attention_finish};
constexpr Isa kAvx512{"avx512",
                      avx512::kv_append,
                      avx512::attention_prepare_q,
                      avx512::attention_chunk,
                      avx512::attention_merge,
                      avx512::attention_finish};

bool has_avx512() { return __builtin_cpu_supports("avx512bf16") != 0; }

// GFLOP/s of vdpbf16ps on all threads of the pool; 0 without it.
Rate bf16_peak(ThreadPool& pool) {
  return bench::measure_peaks(pool, has_avx512() ? "avx512" : "").bf16;
}

// 30 layers x 3 KV heads of `context` slots in one arena.
enum class Order { runs, scattered };
struct Cache {
  static constexpr int kTables = 90, kRun = 32;
  KvLayout layout;
  int context;
  int table_blocks;
  Arena arena;
  std::vector<uint32_t> blocks;

  Cache(const KvLayout& shape, int slots, Order order)
      : layout(shape),
        context(slots),
        table_blocks(slots / shape.block_size),
        arena(static_cast<size_t>(kTables * table_blocks) * shape.block_bytes()),
        blocks(static_cast<size_t>(kTables * table_blocks)) {
    uint32_t next = 0;
    for (int first = 0; first < table_blocks; first += kRun)
      for (int t = 0; t < kTables; ++t)
        for (int j = first; j < std::min(first + kRun, table_blocks); ++j)
          blocks[static_cast<size_t>(t * table_blocks + j)] = next++;
    if (order == Order::scattered) std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
    fill();
  }
  const uint32_t* table(int t) const { return blocks.data() + int64_t{t} * table_blocks; }

 private:
  // Some blocks of random rows, copied over the arena.
  void fill() {
    constexpr int kBlocks = 61;
    const int rows = kBlocks * layout.block_size;
    std::vector<float> x(static_cast<size_t>(rows * layout.head_dim));
    std::mt19937 rng(2);
    for (float& v : x)
      v = (static_cast<float>(rng() + rng() / 2 + rng() / 2) * 0x1p-32f - 1.0f) * 2.0f;
    std::vector<uint32_t> ids(kBlocks);
    std::iota(ids.begin(), ids.end(), 0u);
    KvAppendArgs args;
    args.base = arena.data();
    args.blocks = ids.data();
    args.rows = rows;
    args.k = args.v = x.data();
    args.ldk = args.ldv = layout.head_dim;
    scalar::kv_append(layout, args);
    const size_t bytes = layout.block_bytes();
    for (size_t b = kBlocks; b < blocks.size(); ++b)
      std::memcpy(arena.data() + b * bytes, arena.data() + rng() % kBlocks * bytes, bytes);
  }
};

struct Work {
  std::vector<float> q;
  std::unique_ptr<std::byte[]> storage;
  std::byte* prepared;
  std::vector<float> m, l, o;
  Work(const Isa& isa, const KvLayout& layout, int queries)
      : q(static_cast<size_t>(queries * layout.head_dim)),
        storage(new std::byte[prepared_query_bytes(layout, queries) + 64]),
        prepared(reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(storage.get()) + 63) /
                                              64 * 64)),
        m(static_cast<size_t>(queries)),
        l(static_cast<size_t>(queries)),
        o(static_cast<size_t>(queries * layout.head_dim)) {
    std::mt19937 rng(3);
    for (float& v : q) v = static_cast<float>(rng() % 2000) * 1e-3f - 1.0f;
    isa.prepare_q(layout, q.data(), layout.head_dim, queries, 0.125f, prepared);
  }
  AttentionPartial partial() { return {m.data(), l.data(), o.data()}; }
};

// The same bytes block by block in the order of the tables, fetched ahead, nothing computed: what
// scattered small pages leave of the bandwidth.
__attribute__((target("avx2"))) uint64_t read_blocks(const Cache& cache, int64_t begin,
                                                     int64_t end) {
  const size_t bytes = cache.layout.block_bytes();
  __m256i sum = _mm256_setzero_si256();
  for (int64_t b = begin; b < end; ++b) {
    const std::byte* at = cache.arena.data() + cache.blocks[static_cast<size_t>(b)] * bytes;
    const auto* ahead = reinterpret_cast<const char*>(
        cache.arena.data() + cache.blocks[static_cast<size_t>(std::min(b + 12, end - 1))] * bytes);
    for (size_t i = 0; i < bytes; i += 64) {
      _mm_prefetch(ahead + i, _MM_HINT_T1);
      sum = _mm256_add_epi64(sum, _mm256_load_si256(reinterpret_cast<const __m256i*>(at + i)));
    }
  }
  return static_cast<uint64_t>(_mm256_extract_epi64(sum, 0) + _mm256_extract_epi64(sum, 2));
}

Rate block_bandwidth(ThreadPool& pool, const Cache& cache) {
  return median_rate(static_cast<double>(cache.arena.bytes()), [&] {
    pool.run([&](int t, int n) {
      const Range r = share_of(static_cast<int64_t>(cache.blocks.size()), t, n);
      benchmark::DoNotOptimize(read_blocks(cache, r.begin, r.end));
    });
  });
}

// Medians, and their shares of the better of two measurements of the limit.
void report(benchmark::State& state, const char* unit, std::vector<double>& wall,
            std::vector<double>& cpu, const Rate& before, const Rate& after) {
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  const double median = wall[wall.size() / 2], median_cpu = cpu[cpu.size() / 2];
  const double limit = std::max(before.wall, after.wall);
  const double limit_cpu = std::max(before.cpu, after.cpu);
  state.counters[unit] = median;
  state.counters["limit"] = limit;
  state.counters["share"] = median / limit;
  state.counters["cpu"] = median_cpu;
  state.counters["cpu_limit"] = limit_cpu;
  state.counters["cpu_share"] = median_cpu / limit_cpu;
}

// One decode step's attention: threads take whole chunks; spans of chunks are merged by their
// thread, and the spans after, as the engine does (backend/cpu/part_sum.h).
class DecodeStep {
 public:
  DecodeStep(const Isa& isa, const KvLayout& layout, int group, int context, Order order)
      : isa_(isa),
        layout_(layout),
        group_(group),
        chunks_(context / kChunkSlots),
        cache_(layout, context, order),
        total_(isa, layout, group) {
    for (int i = 0; i <= (chunks_ - 1) / kSpan; ++i)
      span_.push_back(std::make_unique<Work>(isa, layout, group));
  }
  const Cache& cache() const { return cache_; }
  Arena& arena() { return cache_.arena; }

  void run(ThreadPool& pool) {
    while (part_.size() < static_cast<size_t>(pool.size()))
      part_.push_back(std::make_unique<Work>(isa_, layout_, group_));
    for (int table = 0; table < Cache::kTables; ++table) {
      pool.run([&](int t, int n) {
        const Range spans = share_of(static_cast<int64_t>(span_.size()), t, n);
        const Range r{spans.begin * kSpan, std::min<int64_t>(spans.end * kSpan, chunks_)};
        Work& part = *part_[static_cast<size_t>(t)];
        for (int64_t c = r.begin; c < r.end; ++c) {
          chunk(table, c, r, part);
          Work& span = *span_[static_cast<size_t>(c / kSpan)];
          if (c % kSpan == 0) clear(span);
          isa_.merge(group_, layout_.head_dim, part.partial(), span.partial());
        }
      });
      clear(total_);
      for (auto& s : span_) isa_.merge(group_, layout_.head_dim, s->partial(), total_.partial());
    }
  }

 private:
  static constexpr int kSpan = 8;

  static void clear(Work& w) {
    std::fill(w.m.begin(), w.m.end(), -std::numeric_limits<float>::infinity());
  }

  void chunk(int table, int64_t c, const Range& mine, Work& part) {
    const int chunk_blocks = kChunkSlots / layout_.block_size;
    const int16_t lo = 0, hi = kChunkSlots;
    AttentionChunkArgs args;
    args.base = cache_.arena.data();
    args.blocks = cache_.table(table) + c * chunk_blocks;
    args.slots = kChunkSlots;
    args.q = total_.prepared;
    args.rows = 1;
    args.group = group_;
    args.lo = &lo;
    args.hi = &hi;
    args.out = part.partial();
    // The next chunk of this thread, or its first one of the next table.
    if (c + 1 < mine.end)
      args.next_blocks = args.blocks + chunk_blocks;
    else if (table + 1 < Cache::kTables)
      args.next_blocks = cache_.table(table + 1) + mine.begin * chunk_blocks;
    args.next_count = args.next_blocks != nullptr ? chunk_blocks : 0;
    isa_.chunk(layout_, args);
  }

  const Isa& isa_;
  const KvLayout layout_;
  const int group_, chunks_;
  Cache cache_;
  std::vector<std::unique_ptr<Work>> span_, part_;  // part_: one a thread
  Work total_;
};

void decode(benchmark::State& state, const Isa& isa, KvLayout layout, int group, int context,
            Order order = Order::runs) {
  if (&isa == &kAvx512 && !has_avx512()) return state.SkipWithError("no AVX-512 BF16");
  ThreadPool pool(static_cast<int>(state.range(0)));
  DecodeStep step(isa, layout, group, context, order);
  step.run(pool);
  // Bandwidth before and after: neighbours on the machine come and go.
  const Rate before = read_bandwidth(pool, step.arena());
  const double gb = static_cast<double>(step.arena().bytes()) * 1e-9;
  std::vector<double> wall, cpu;
  for (auto _ : state) {
    const double w = seconds(), c = cpu_seconds();
    step.run(pool);
    wall.push_back(gb / (seconds() - w));
    cpu.push_back(gb / (cpu_seconds() - c));
  }
  const Rate reader = block_bandwidth(pool, step.cache());
  report(state, "GB/s", wall, cpu, before, read_bandwidth(pool, step.arena()));
  state.counters["reader"] = reader.wall;
  state.counters["cpu_reader"] = reader.cpu;
}

// Two types in turn, on the same threads.
void compare(benchmark::State& state, const Isa& isa, KvLayout first, KvLayout second, int group,
             int context) {
  if (&isa == &kAvx512 && !has_avx512()) return state.SkipWithError("no AVX-512 BF16");
  ThreadPool pool(static_cast<int>(state.range(0)));
  DecodeStep a(isa, first, group, context, Order::runs),
      b(isa, second, group, context, Order::runs);
  a.run(pool), b.run(pool);
  std::vector<double> first_ms, second_ms, ratio, first_cpu, second_cpu;
  for (auto _ : state) {
    const double t0 = seconds(), c0 = cpu_seconds();
    a.run(pool);
    const double t1 = seconds(), c1 = cpu_seconds();
    b.run(pool);
    const double t2 = seconds(), c2 = cpu_seconds();
    first_cpu.push_back((c1 - c0) * 1e3);
    second_cpu.push_back((c2 - c1) * 1e3);
    first_ms.push_back((t1 - t0) * 1e3);
    second_ms.push_back((t2 - t1) * 1e3);
    ratio.push_back((t1 - t0) / (t2 - t1));
  }
  const auto median = [](std::vector<double>& v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  };
  state.counters["first_ms"] = median(first_ms);
  state.counters["second_ms"] = median(second_ms);
  state.counters["second_GB/s"] =
      static_cast<double>(b.arena().bytes()) * 1e-6 / state.counters["second_ms"];
  state.counters["ratio"] = median(ratio);
  // The least processor time is what others disturbed least.
  const double c1 = *std::min_element(first_cpu.begin(), first_cpu.end());
  const double c2 = *std::min_element(second_cpu.begin(), second_cpu.end());
  state.counters["first_cpu_ms"] = c1;
  state.counters["second_cpu_ms"] = c2;
  state.counters["cpu_ratio"] = c1 / c2;
}

// The attention of `rows` prompt rows over a context before them, one layer's three KV heads.
void prefill(benchmark::State& state, const Isa& isa, KvLayout layout, int group) {
  if (&isa == &kAvx512 && !has_avx512()) return state.SkipWithError("no AVX-512 BF16");
  const int rows = static_cast<int>(state.range(0)), threads = static_cast<int>(state.range(1));
  const int context = 2048, tables = 6;
  Cache cache(layout, context, Order::runs);
  ThreadPool pool(threads);
  const Rate before = bf16_peak(pool);
  const int chunk_blocks = kChunkSlots / layout.block_size;
  const int queries = rows * group;
  std::vector<std::unique_ptr<Work>> part, total;
  for (int t = 0; t < threads; ++t) {
    part.push_back(std::make_unique<Work>(isa, layout, queries));
    total.push_back(std::make_unique<Work>(isa, layout, queries));
  }
  const std::vector<int16_t> lo(static_cast<size_t>(rows), 0);
  const std::vector<int16_t> hi(static_cast<size_t>(rows), kChunkSlots);
  const double gflop = 4e-9 * queries * layout.head_dim * context * tables;
  std::vector<double> wall, cpu;
  for (auto _ : state) {
    const double w = seconds(), u = cpu_seconds();
    pool.run([&](int t, int n) {
      Work& mine = *part[static_cast<size_t>(t)];
      Work& sum = *total[static_cast<size_t>(t)];
      const Range r = share_of(tables, t, n);
      for (int64_t table = r.begin; table < r.end; ++table) {
        std::fill(sum.m.begin(), sum.m.end(), -std::numeric_limits<float>::infinity());
        for (int c = 0; c < context / kChunkSlots; ++c) {
          AttentionChunkArgs args;
          args.base = cache.arena.data();
          args.blocks = cache.table(static_cast<int>(table)) + c * chunk_blocks;
          args.slots = kChunkSlots;
          args.q = sum.prepared;
          args.rows = rows;
          args.group = group;
          args.lo = lo.data();
          args.hi = hi.data();
          args.out = mine.partial();
          isa.chunk(layout, args);
          isa.merge(queries, layout.head_dim, mine.partial(), sum.partial());
        }
      }
    });
    wall.push_back(gflop / (seconds() - w));
    cpu.push_back(gflop / (cpu_seconds() - u));
  }
  report(state, "GFLOP/s", wall, cpu, before, bf16_peak(pool));
}

constexpr struct {
  const char* name;
  DType type;
} kTypes[] = {{"bf16", DType::bf16},         {"f16", DType::f16},           {"f32", DType::f32},
              {"fp8_e4m3", DType::fp8_e4m3}, {"fp8_e5m2", DType::fp8_e5m2}, {"int8", DType::int8},
              {"int4", DType::int4}};

// As the engine has it where nobody names a group.
KvLayout layout_of(DType type, int dim) {
  return {type, type, dim, 16, kv_group_of(kAutoKvGroup, type)};
}

std::string shape_name(int dim, int group) {
  return "/dim" + std::to_string(dim) + "/group" + std::to_string(group);
}

void register_types(const Isa* isa) {
  for (const auto& type : kTypes) {
    for (int dim : {64, 128}) {
      const KvLayout layout = layout_of(type.type, dim);
      const int group = dim == 64 ? 3 : 2;
      const std::string suffix =
          std::string("/") + isa->name + "/" + type.name + shape_name(dim, group);
      const int context = dim == 64 ? 8192 : 4096;
      auto* d = benchmark::RegisterBenchmark(("decode" + suffix).c_str(), [=](benchmark::State& s) {
        decode(s, *isa, layout, group, context);
      });
      d->ArgNames({"threads"})->Unit(benchmark::kMillisecond)->UseRealTime();
      for (int threads : {1, 2}) d->Args({threads});
      auto* p = benchmark::RegisterBenchmark(
          ("prefill" + suffix).c_str(),
          [=](benchmark::State& s) { prefill(s, *isa, layout, group); });
      p->ArgNames({"rows", "threads"})->Unit(benchmark::kMillisecond)->UseRealTime();
      for (int rows : {16, 64})
        for (int threads : {1, 2}) p->Args({rows, threads});
    }
  }
}

// Decode over a cache that no processor cache holds, by all threads: the kernel's share of what
// memory gives.
void register_memory(const Isa* isa) {
  constexpr int64_t kBytes = int64_t{640} << 20;
  for (const auto& type : kTypes) {
    for (int dim : {64, 128}) {
      const KvLayout layout = layout_of(type.type, dim);
      const auto a_slot = static_cast<int64_t>(layout.block_bytes()) / 16 * Cache::kTables;
      const auto context = static_cast<int>(kBytes / a_slot / 1024 * 1024);
      for (int group : {1, 2, 3, 4, 8}) {
        const std::string name =
            std::string("/") + isa->name + "/" + type.name + shape_name(dim, group);
        for (const Order order : {Order::runs, Order::scattered}) {
          auto* d = benchmark::RegisterBenchmark(
              ((order == Order::runs ? "memory" : "scattered") + name).c_str(),
              [=](benchmark::State& s) { decode(s, *isa, layout, group, context, order); });
          d->ArgNames({"threads"})->Unit(benchmark::kMillisecond)->UseRealTime();
          for (int threads : {1, 2}) d->Args({threads});
        }
      }
    }
  }
}

void register_comparisons(const Isa* isa) {
  const struct {
    const char* name;
    DType first, second;
  } pairs[] = {{"bf16-int8", DType::bf16, DType::int8},
               {"int8-int4", DType::int8, DType::int4},
               {"bf16-e4m3", DType::bf16, DType::fp8_e4m3},
               {"bf16-e5m2", DType::bf16, DType::fp8_e5m2},
               {"bf16-f16", DType::bf16, DType::f16}};
  for (const auto& pair : pairs) {
    for (int dim : {64, 128}) {
      for (int group : {1, 2, 3, 4, 8}) {
        const KvLayout first = layout_of(pair.first, dim);
        const KvLayout second = layout_of(pair.second, dim);
        const int context = dim == 64 ? 8192 : 4096;
        auto* c = benchmark::RegisterBenchmark(
            (std::string("compare/") + isa->name + "/" + pair.name + shape_name(dim, group))
                .c_str(),
            [=](benchmark::State& s) { compare(s, *isa, first, second, group, context); });
        c->ArgNames({"threads"})->Unit(benchmark::kMillisecond)->UseRealTime();
        for (int threads : {1, 2}) c->Args({threads});
      }
    }
  }
}

void register_all() {
  for (const Isa* isa : {&kAvx512, &kAvx2, &kScalar}) {
    register_types(isa);
    if (isa == &kScalar) continue;
    register_memory(isa);
    register_comparisons(isa);
  }
}

}  // namespace
}  // namespace pagefold::kernels

int main(int argc, char** argv) {
  pagefold::kernels::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
