// Plain matrices, ours against oneDNN's, in turn: all products of a model of SmolLM2-135M's shape,
// 30 layers, over all threads (oneDNN's by OpenMP). Weights are packed by each side before, in the
// form it likes best. Built where oneDNN is installed (Debian: libdnnl-dev).
//   build/release/bin/onednn_bench [repeat=9]
// Prints, by type and rows, the medians in ms and oneDNN's time over ours.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <dnnl.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/threads.h"
#include "bench/made_matrices.h"
#include "kernels/kernels.h"

namespace pagefold {
namespace {

constexpr bench::MatrixDims kShapes[] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
constexpr int kLayers = 30;

class OneDnn {
 public:
  OneDnn(dnnl::memory::data_type type, int rows)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using Memory = dnnl::memory;
    using Tag = Memory::format_tag;
    for (const auto& [n_out, n_in] : kShapes) {
      const Memory::desc x({rows, n_in}, type, Tag::ab), any({n_in, n_out}, type, Tag::any),
          plain({n_in, n_out}, type, Tag::ba), y({rows, n_out}, Memory::data_type::f32, Tag::ab);
      const dnnl::matmul::primitive_desc made({x, any, y}, engine_);
      Memory source(plain, engine_);
      std::memset(source.get_data_handle(), 0, plain.get_size());
      products_.push_back({dnnl::matmul(made), Memory(x, engine_), Memory(y, engine_), {}});
      std::memset(products_.back().x.get_data_handle(), 0, x.get_size());
      for (int i = 0; i < kLayers; ++i) {
        Memory packed(made.weights_desc(), engine_);
        dnnl::reorder(source, packed).execute(stream_, source, packed);
        products_.back().weights.push_back(std::move(packed));
      }
    }
    stream_.wait();
  }
  void run() {
    for (int i = 0; i < kLayers; ++i) {
      for (Product& p : products_) {
        p.matmul.execute(stream_, {{DNNL_ARG_SRC, p.x},
                                   {DNNL_ARG_WEIGHTS, p.weights[static_cast<size_t>(i)]},
                                   {DNNL_ARG_DST, p.y}});
      }
    }
    stream_.wait();
  }

 private:
  struct Product {
    dnnl::matmul matmul;
    dnnl::memory x, y;
    std::vector<dnnl::memory> weights;
  };
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Product> products_;
};

template <class F>
double milliseconds(F&& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void compare(const char* format, dnnl::memory::data_type type, int rows, int repeat,
             const kernels::Kernels& k, ThreadPool& pool) {
  const auto formats = bench::matrix_formats();
  const auto found = std::find_if(formats.begin(), formats.end(), [&](const auto& f) {
    return std::string_view(f.name) == format;
  });
  bench::MadeMatrices ours(*found, kShapes, kLayers, rows, k);
  OneDnn theirs(type, rows);
  ours.run(k, pool), theirs.run();
  std::vector<double> a, b;
  for (int i = 0; i < repeat; ++i) {
    a.push_back(milliseconds([&] { ours.run(k, pool); }));
    b.push_back(milliseconds([&] { theirs.run(); }));
  }
  std::printf("%-10s %4d rows   ours %8.2f ms   oneDNN %8.2f ms   x %.2f\n", format, rows,
              median(a), median(b), median(b) / median(a));
}

int run(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "repeat=9";
  if (argc > 2 || word.rfind("repeat=", 0) != 0) {
    std::fprintf(stderr, "usage: onednn_bench [repeat=9]\n");
    return 2;
  }
  const int repeat = std::max(1, std::stoi(word.substr(7)));
  const auto k = kernels::select_kernels("auto");
  if (!k.ok()) return 1;
  ThreadPool pool(usable_cores());
  omp_set_num_threads(usable_cores());
  const dnnl_version_t* v = dnnl_version();
  std::printf("oneDNN %d.%d.%d, %d threads, %s\n", v->major, v->minor, v->patch, usable_cores(),
              std::string((*k)->name).c_str());
  for (const int rows : {1, 8, 64, 512}) {
    compare("bf16_bf16", dnnl::memory::data_type::bf16, rows, repeat, **k, pool);
    compare("f32_f32", dnnl::memory::data_type::f32, rows, repeat, **k, pool);
  }
  return 0;
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) { return pagefold::run(argc, argv); }
