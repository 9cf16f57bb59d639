// Weights in memory: packed tiles of one or several stacked source matrices.
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/memory.h"
#include "base/threads.h"
#include "kernels/kernels.h"

namespace pagefold::cpu {

struct Segment {
  kernels::PackedMatrix packed;
  kernels::InputKind input = kernels::InputKind::f32;
  int64_t column = 0;  // of the first output in the stacked result
  int arrangement = 0;
  std::vector<float> table;  // what packed.table points to
};

// An order of the inputs that some segments read them in (act-order), and the forms they need.
struct Arrangement {
  std::vector<int32_t> order;  // input j is the source's input order[j]; empty: as they are
  bool f32 = false, bf16 = false, i8 = false, i8x2 = false;
};

struct Matrix {
  std::vector<Segment> segments;
  std::vector<Arrangement> arrangements{1};  // the first one has no order
  int64_t n_out = 0, n_in = 0;
  int tiles = 0;  // of all segments
  uint64_t bytes() const;
  // Row `row` of the only segment as float32, in the source's order of inputs.
  void read_row(int64_t row, float* values) const;
};

struct PackOptions {
  DType dtype = DType::bf16;
  Activations activations = Activations::automatic;
};

// Repacks the sources row by row into `memory`, over the pool's threads; no full-precision copy is
// made.
Result<Matrix> pack_matrix(std::span<const MatrixSource* const> parts, const PackOptions& options,
                           ThreadPool& pool, LastingMemory& memory);

}  // namespace pagefold::cpu
