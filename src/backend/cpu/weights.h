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
  Pages memory;
};

struct Matrix {
  std::vector<Segment> segments;
  int64_t n_out = 0, n_in = 0;
  int tiles = 0;  // of all segments
  bool needs(kernels::InputKind kind) const;
  uint64_t bytes() const;
};

struct PackOptions {
  DType dtype = DType::bf16;
  bool activations_int8 = true;
};

// Repacks the sources row by row, over the pool's threads; no full-precision copy is made.
Result<Matrix> pack_matrix(std::span<const MatrixSource* const> parts, const PackOptions& options,
                           ThreadPool& pool);

}  // namespace pagefold::cpu
