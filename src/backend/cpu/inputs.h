// The input of a matmul in the forms its weights read: float32 (rounded to --dtype), bfloat16, int8
// with scales, twice int8; once for each order in which some of the weights want them
// (Matrix::arrangements).
#pragma once

#include "backend/cpu/weights.h"

namespace pagefold::cpu {

class Inputs {
 public:
  Inputs(const kernels::Kernels& k, DType dtype) : k_(k), dtype_(dtype) {}
  // Room for `rows` rows of `columns` values in every form and `arrangements` orders.
  Status reserve(int64_t rows, int64_t columns, int64_t arrangements);
  // Row r of the coming matmul by `m`, whose inputs are the n_in values of `row`. Rows may be set
  // in parallel. `row` is scratch: it may be rounded in place.
  void set_row(const Matrix& m, int64_t r, float* row);
  // A place to build a row in (thread-private by row).
  float* row(const Matrix& m, int64_t r) { return f32_.data() + r * m.n_in; }
  void fill(kernels::MatmulArgs& args, const Segment& s, int64_t n_in) const;

 private:
  void set_forms(const Arrangement& forms, int64_t plane, int64_t n_in, int64_t r, float* row);
  void quantize_twice(int64_t plane, int64_t n_in, int64_t r, const float* row) const;
  kernels::QuantizedRows quantized(int64_t plane, bool two, int64_t at) const;
  float* f32(int64_t plane) const { return f32_.data() + plane * plane_; }
  uint16_t* bf16(int64_t plane) const {
    return reinterpret_cast<uint16_t*>(bf16_.data()) + plane * plane_;
  }
  const kernels::Kernels& k_;
  DType dtype_;
  int64_t plane_ = 0;  // values of one arrangement: a multiple of 64, so that all stay aligned
  FloatBuffer f32_, bf16_, q_, scale_, sums_;
};

}  // namespace pagefold::cpu
