// The input of a matmul in the forms its weights read: float32 (rounded to --dtype), bfloat16, int8
// with scales.
#pragma once

#include "backend/cpu/weights.h"

namespace pagefold::cpu {

class Inputs {
 public:
  Inputs(const kernels::Kernels& k, DType dtype) : k_(k), dtype_(dtype) {}
  // Room for `rows` rows of `columns` values in every form.
  Status reserve(int64_t rows, int64_t columns);
  // Row r of the coming matmul by `m`, whose inputs are the n_in values of `row`. Rows may be set
  // in parallel. `row` is scratch: it may be rounded in place.
  void set_row(const Matrix& m, int64_t r, float* row);
  // A place to build a row in (thread-private by row).
  float* row(const Matrix& m, int64_t r) { return f32_.data() + r * m.n_in; }
  void fill(kernels::MatmulArgs& args, kernels::InputKind kind, int64_t n_in) const;

 private:
  kernels::QuantizedRows quantized(int64_t n_in, int64_t r) const;
  const kernels::Kernels& k_;
  DType dtype_;
  FloatBuffer f32_, bf16_, q_, scale_, sums_;
};

}  // namespace pagefold::cpu
