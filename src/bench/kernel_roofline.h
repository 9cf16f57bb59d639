// `pagefold bench --roofline`: every kernel by itself on a model's shapes, against what the memory
// and the processor can do at most. Weights and caches are made up and larger than the processor's
// caches, so that a matmul of one row and the attention of one token read memory; the element-wise
// kernels work on rows that stay in the caches, as in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/made_matrices.h"
#include "bench/peaks.h"

namespace pagefold::bench {

struct KernelOptions {
  int n_heads = 1, n_kv_heads = 1, head_dim = 64;
  int hidden = 0, ffn = 0;
  std::vector<MatrixDims> matrices;  // of a layer
  int threads = 1;
  std::string isa = "auto";
  int64_t context = 4096;            // slots before the rows of attention
  std::vector<int> rows = {1, 512};  // of matmuls; the last one also of the others
  int repeat = 7;                    // calls timed, of which the median counts
  size_t bytes = size_t{128} << 20;  // that weights and caches fill at least
};

struct KernelRow {
  std::string kernel, type;  // "matmul", "Q4_1, int8 inputs"; "attention", "int8"
  int64_t rows = 1, context = 0;
  double ms = 0, bytes = 0, ops = 0;  // of a call over everything made up; a multiply-add is two
  double peak_gops = 0;  // of the processor in this kernel's kind of numbers; 0: not known
  bool cached = false;   // its bytes lie in the processor's caches

  double gb_per_s() const { return bytes * 1e-6 / ms; }
  double gops() const { return ops * 1e-6 / ms; }
};

struct KernelTimes {
  std::string isa;
  Peaks peaks;
  std::vector<KernelRow> rows;
};

// Attention by every type of the cache: one token (rows 1), and a prompt's rows at the same depth.
// Matmuls by every kind of weights. Quantised kinds are left out where the inputs are no multiples
// of 32.
Result<KernelTimes> measure_kernels(const KernelOptions& options);

}  // namespace pagefold::bench
