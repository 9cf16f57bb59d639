// Speed of the matmul kernels on the shapes of SmolLM2-135M, beside the machine's peaks.
//   build/release/bin/kernels_bench --benchmark_filter=... [--benchmark_repetitions=9]
// Names: Layers/KIND/ISA/rows/threads = the four matrices of 30 layers in order, as a step reads
// them; Head = the 49152 x 576 output matrix. Counters: ops (multiply-add = 2), bytes of weights.
// A busy machine spoils single figures: compare the maxima of interleaved repetitions
// (--benchmark_enable_random_interleaving=true --benchmark_repetitions=9).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "kernels/kernels.h"
#include "peaks.h"

namespace pagefold::bench {
namespace {

using kernels::InputKind;
using kernels::Kernels;
using kernels::MatmulArgs;
using kernels::PackedMatrix;
using kernels::PackedShape;
using kernels::PackKind;

struct FreeBytes {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, FreeBytes>;

Bytes allocate(size_t n) {
  return Bytes(static_cast<std::byte*>(std::aligned_alloc(64, (n + 63) / 64 * 64)));
}

struct Format {
  const char* name;
  PackKind kind;
  InputKind input;
  int group = 32;  // 64 where it does not divide the inputs; 0: a scale a row
  bool has_min = false, has_zero = false, scale_f16 = true;
};
constexpr Format kFormats[] = {{"q4_1_i8", PackKind::w4, InputKind::i8, 32, true},
                               {"q8_0_i8", PackKind::w8, InputKind::i8},
                               {"q4_1_f32", PackKind::w4, InputKind::f32, 32, true},
                               {"q8_0_f32", PackKind::w8, InputKind::f32},
                               {"bf16_bf16", PackKind::bf16, InputKind::bf16},
                               {"bf16_f32", PackKind::bf16, InputKind::f32},
                               {"f16_f32", PackKind::f16, InputKind::f32},
                               {"f32_f32", PackKind::f32, InputKind::f32},
                               {"w4a16", PackKind::w4, InputKind::f32, 128, false, true},
                               {"w4a8", PackKind::w4, InputKind::i8, 128, false, true},
                               {"w8a16", PackKind::w8, InputKind::f32, 128},
                               {"w8a8", PackKind::w8, InputKind::i8, 0, false, false, false},
                               {"nf4", PackKind::t4, InputKind::f32, 64, false, false, false},
                               {"iq4_nl_i8", PackKind::t4, InputKind::i8},
                               {"fp8", PackKind::fp8, InputKind::f32, 0, false, false, false}};
constexpr float kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};

PackedShape shape_of(const Format& f, int n_out, int n_in) {
  PackedShape s;
  s.kind = f.kind;
  s.n_out = n_out;
  s.n_in = n_in;
  s.group = f.group == 0 ? n_in : n_in % f.group == 0 ? f.group : 64;
  s.has_min = f.has_min;
  s.has_zero = f.has_zero;
  s.scale_f16 = f.scale_f16;
  return s;
}

// One tile of real numbers, copied into all tiles of a matrix.
void fill_matrix(const PackedShape& shape, std::byte* data) {
  PackedShape one = shape;
  one.n_out = kernels::kTileRows;
  const size_t size = one.tile_bytes();
  std::memset(data, 0, size);
  std::vector<float> values(static_cast<size_t>(shape.n_in));
  std::vector<int8_t> q(values.size());
  const std::vector<float> scale(values.size() / 32, 0x1p-7f);
  const std::vector<float> min(values.size() / 32, shape.has_zero ? 8 : -0x1p-4f);
  for (int row = 0; row < kernels::kTileRows; ++row) {
    for (size_t k = 0; k < values.size(); ++k) {
      values[k] = std::sin(static_cast<float>(k) + 0.1f * static_cast<float>(row));
      const bool nibble = shape.kind == PackKind::w4 || shape.kind == PackKind::t4;
      q[k] = static_cast<int8_t>(nibble ? 8 + 7 * values[k] : 120 * values[k]);
      if (shape.kind == PackKind::fp8) q[k] |= 0x20;  // hardly any subnormals, as in real weights
      if ((q[k] & 0x7f) == 0x7f) q[k] = 0x7e;
    }
    if (shape.kind >= PackKind::w8) {
      pack_row_quant(one, row, {q.data(), scale.data(), min.data()}, data);
    } else {
      pack_row_f32(one, row, values.data(), data);
    }
  }
  for (int t = 1; t < shape.tiles(); ++t) {
    std::memcpy(data + static_cast<size_t>(t) * size, data, size);
  }
}

// Matrices one after the other in memory, and inputs that fit all of them.
struct Network {
  Network(const Format& format, const std::vector<std::pair<int, int>>& shapes, int copies,
          int input_rows, const Kernels& k)
      : input(format.input), rows(input_rows) {
    size_t at = 0;
    int widest = 0;
    std::vector<size_t> offsets;
    for (int c = 0; c < copies; ++c) {
      for (const auto& [n_out, n_in] : shapes) {
        const PackedShape shape = shape_of(format, n_out, n_in);
        matrices.push_back({shape, nullptr, kTable});
        offsets.push_back(at);
        at += shape.bytes();
        weights += static_cast<double>(n_out) * n_in;
        widest = std::max(widest, n_in);
        most_outputs = std::max(most_outputs, n_out);
      }
    }
    bytes = at;
    data = allocate(at);
    for (size_t i = 0; i < matrices.size(); ++i) {
      fill_matrix(matrices[i].shape, data.get() + offsets[i]);
      matrices[i].data = data.get() + offsets[i];
    }
    const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(widest);
    x.resize(n);
    for (size_t i = 0; i < n; ++i) x[i] = std::sin(static_cast<float>(i % 1009));
    x16.resize(n);
    k.to_bf16(x.data(), static_cast<int64_t>(n), x16.data());
    q = allocate(n);
    scale.resize(n / 32);
    sums.resize(n / 16);
    k.quantize_rows(x.data(), widest, rows, widest, quantized(), nullptr);
    y = allocate(static_cast<size_t>(rows) * static_cast<size_t>(most_outputs) * 4);
  }
  kernels::QuantizedRows quantized() {
    return {reinterpret_cast<int8_t*>(q.get()), scale.data(), sums.data()};
  }
  void run(const Kernels& k, ThreadPool& pool) {
    for (const PackedMatrix& m : matrices) {
      pool.run([&](int thread, int n) {
        const Range tiles = share_of(m.shape.tiles(), thread, n);
        MatmulArgs a;
        a.weights = &m;
        a.input = input;
        a.x = input == InputKind::bf16 ? static_cast<const void*>(x16.data()) : x.data();
        a.ldx = m.shape.n_in;
        a.xq = quantized();
        a.rows = rows;
        a.y = reinterpret_cast<float*>(y.get());
        a.ldy = m.shape.n_out;
        a.tile_begin = static_cast<int>(tiles.begin);
        a.tile_end = static_cast<int>(tiles.end);
        k.matmul(a);
      });
    }
  }

  std::vector<PackedMatrix> matrices;
  InputKind input;
  int rows;
  double weights = 0;
  size_t bytes = 0;
  int most_outputs = 0;
  Bytes data, q, y;
  std::vector<float> x, scale;
  std::vector<uint16_t> x16;
  std::vector<int32_t> sums;
};

void run_network(benchmark::State& state, const Format& format,
                 const std::vector<std::pair<int, int>>& shapes, int copies, const Kernels& k) {
  const int rows = static_cast<int>(state.range(0));
  ThreadPool pool(static_cast<int>(state.range(1)));
  Network net(format, shapes, copies, rows, k);
  for (auto _ : state) net.run(k, pool);
  state.counters["ops"] =
      benchmark::Counter(2 * net.weights * rows, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["bytes"] = benchmark::Counter(static_cast<double>(net.bytes),
                                               benchmark::Counter::kIsIterationInvariantRate);
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
  const auto size = static_cast<size_t>(state.range(0)) << 20;
  ThreadPool pool(static_cast<int>(state.range(1)));
  Bytes data = allocate(size);
  std::memset(data.get(), 1, size);
  for (auto _ : state) {
    pool.run([&](int thread, int n) {
      const Range part = share_of(static_cast<int64_t>(size / 512), thread, n);
      benchmark::DoNotOptimize(read_avx512(data.get() + part.begin * 512,
                                           static_cast<size_t>(part.end - part.begin) * 512));
    });
  }
  state.counters["bytes"] =
      benchmark::Counter(static_cast<double>(size), benchmark::Counter::kIsIterationInvariantRate);
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
  const std::vector<std::pair<int, int>> layer = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
  for (int i = 0; i < count; ++i) {
    const Kernels& k = *list[i];
    for (const Format& format : kFormats) {
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
