// Speed of the matmul kernels on the shapes of SmolLM2-135M, beside the machine's peaks.
//   build/release/bin/kernels_bench --benchmark_filter=... [--benchmark_repetitions=9]
// Names: Layers/KIND/ISA/rows/threads = the four matrices of 30 layers in order, as a step reads
// them; Head = the 49152 x 576 output matrix. Counters: ops (multiply-add = 2), bytes of weights.
// A busy machine spoils single figures: compare the maxima of interleaved repetitions
// (--benchmark_enable_random_interleaving=true --benchmark_repetitions=9).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "bench/bandwidth.h"
#include "bench/made_matrices.h"
#include "bench/peaks.h"
#include "kernels/kernels.h"

namespace pagefold::bench {
namespace {

using kernels::Kernels;

void run_network(benchmark::State& state, const MatrixFormat& format,
                 const std::vector<MatrixDims>& shapes, int copies, const Kernels& k) {
  const int rows = static_cast<int>(state.range(0));
  ThreadPool pool(static_cast<int>(state.range(1)));
  MadeMatrices net(format, shapes, copies, rows, k);
  for (auto _ : state) net.run(k, pool);
  state.counters["ops"] =
      benchmark::Counter(net.ops(), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["bytes"] =
      benchmark::Counter(net.bytes(), benchmark::Counter::kIsIterationInvariantRate);
}

void run_peak(benchmark::State& state, double (*peak)(int64_t)) {
  ThreadPool pool(static_cast<int>(state.range(1)));
  double ops = 0;
  for (auto _ : state) {
    double once = 0;
    pool.run([&](int thread, int) {
      const double n = peak(200000);
      if (thread == 0) once = n;
    });
    ops += once * pool.size();
  }
  state.counters["ops"] = benchmark::Counter(ops, benchmark::Counter::kIsRate);
}

void run_read(benchmark::State& state) {
  const Arena arena(static_cast<size_t>(state.range(0)) << 20);
  std::memset(arena.data(), 1, arena.bytes());
  ThreadPool pool(static_cast<int>(state.range(1)));
  for (auto _ : state) read_arena(pool, arena);
  state.counters["bytes"] = benchmark::Counter(static_cast<double>(arena.bytes()),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

// One thread is timed by its own CPU time, which a busy machine spoils least; two by the wall
// clock.
void add(const std::string& name, const std::vector<int64_t>& sizes,
         const std::function<void(benchmark::State&)>& f) {
  for (const int64_t threads : {1, 2}) {
    auto* b = benchmark::RegisterBenchmark(name.c_str(), f)
                  ->ArgsProduct({sizes, {threads}})
                  ->Unit(benchmark::kMillisecond)
                  ->ComputeStatistics("max", [](const std::vector<double>& v) {
                    return *std::max_element(v.begin(), v.end());
                  });
    if (threads > 1) b->UseRealTime();
  }
}

void register_all() {
  int count = 0;
  const Kernels* const* list = kernels::available_kernels(&count);
  if (list[count - 1]->name == "avx512") {
    add("Peak/f32", {0}, [](auto& s) { run_peak(s, peak_f32_avx512); });
    add("Peak/bf16", {0}, [](auto& s) { run_peak(s, peak_bf16_avx512); });
    add("Peak/int8", {0}, [](auto& s) { run_peak(s, peak_int8_avx512); });
    add("Read", {1, 64, 1024}, run_read);
  }
  const std::vector<MatrixDims> layer = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
  for (int i = 0; i < count; ++i) {
    const Kernels& k = *list[i];
    for (const MatrixFormat& format : matrix_formats()) {
      const std::string tail = std::string(format.name) + "/" + std::string(k.name);
      add("Layers/" + tail, {1, 2, 4, 8, 32, 512},
          [&, layer](auto& s) { run_network(s, format, layer, 30, k); });
      add("Head/" + tail, {1, 8, 32}, [&](auto& s) {
        run_network(s, format, {{49152, 576}}, 1, k);
      });
    }
  }
}

}  // namespace
}  // namespace pagefold::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  pagefold::bench::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
