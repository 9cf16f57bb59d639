// The matmul and element-wise functions of each instruction set; the table (kernels.h) is filled
// from them.
#pragma once

#include "kernels/kernels.h"

namespace pagefold::kernels {

// exp_values is what silu_mul uses inside; it is declared so that tests can measure it.
#define PAGEFOLD_DENSE_FUNCTIONS                                                             \
  void matmul(const MatmulArgs& args);                                                       \
  void quantize_rows(const float* x, int64_t ldx, int rows, int n, const QuantizedRows& out, \
                     float* rest);                                                           \
  void to_bf16(const float* x, int64_t n, uint16_t* y);                                      \
  void round_to(DType dtype, float* x, int64_t n);                                           \
  void rms_norm(const float* x, const float* gamma, float eps, int n, float* y);             \
  void silu_mul(const float* gate, const float* up, int n, float* y);                        \
  void rope(float* head, const float* cos, const float* sin, int rot, bool half_layout);     \
  void exp_values(const float* x, int n, float* y);
// matmul's loops: unquantised weights; quantised ones with float inputs in groups of 16 or 32, and
// in larger ones; quantised ones with int8 inputs, and those of them that sums_groups() names.
#define PAGEFOLD_MATMUL_PARTS                  \
  void matmul_float(const MatmulArgs& args);   \
  void matmul_dequant(const MatmulArgs& args); \
  void matmul_grouped(const MatmulArgs& args); \
  void matmul_i8(const MatmulArgs& args);      \
  void matmul_i8_group(const MatmulArgs& args);

// i8x2: the call that computes two rows a row; matmul's loops count those, and store_outputs adds
// the second one of two to the first.
__attribute__((always_inline)) inline MatmulArgs doubled(const MatmulArgs& args) {
  MatmulArgs two = args;
  two.rows *= 2;
  return two;
}

// Where row `row` of the loops goes. i8x2: rows 2r and 2r + 1 both go to row r; the second, which
// is always computed after the first, is added.
struct OutputRow {
  float* y;
  const float* bias;
  bool accumulate;
};
__attribute__((always_inline)) inline OutputRow output_row(const MatmulArgs& a, int row) {
  if (a.input != InputKind::i8x2) return {a.y + row * a.ldy, a.bias, a.accumulate};
  const bool second = row % 2 != 0;
  return {a.y + row / 2 * a.ldy, second ? nullptr : a.bias, second || a.accumulate};
}

// Breaks off where arguments do not fit each other (a bug of the caller).
void check_matmul_args(const MatmulArgs& args);
// Whether vdpbf16ps is slower than widening the inputs and multiplying in float32: Intel cores
// begin one every other cycle (measured: 89 GFLOP/s against 178 of FMA), AMD's two a cycle.
bool slow_dpbf16();
// A buffer of the calling thread, 64-byte aligned, at least `bytes` long; it grows and stays. The
// next call on the thread may hand out the same memory.
std::byte* thread_scratch(size_t bytes);
// What the int8 kernels need of the inputs beside their values, for rows [row, row + rows), each
// [rows][n_in / group]: min_sum = scale * (sum of the group's inputs), the factor of the min term;
// start = -128 * that sum, where a dot product with weights stored as q + 128 begins.
void prepare_groups(const MatmulArgs& args, int row, int rows, float* min_sum, int* start);

// The same for the kernels of sums_groups(), whose dot products have 16 (groups of 16) or 32
// inputs:
//   start[rows][n_in / step]   -128 * (sum of a step's inputs)
//   min_sum[rows][n_in / group] = fma(sum, scale, ...) over the steps of a group: the factor of
//                              the group's min or zero point
void prepare_steps(const MatmulArgs& args, int row, int rows, int* start, float* min_sum);
// int8 inputs: whether a group is summed before its scale is applied. Groups of 16 and 32 without
// zero points, which GGUF files have, apply it to each dot product.
__attribute__((always_inline)) inline bool sums_groups(const PackedShape& s) {
  return s.group > 32 || s.has_zero;
}

namespace scalar {
PAGEFOLD_DENSE_FUNCTIONS
}
namespace avx2 {
PAGEFOLD_MATMUL_PARTS
PAGEFOLD_DENSE_FUNCTIONS
}  // namespace avx2
namespace avx512 {
PAGEFOLD_MATMUL_PARTS
PAGEFOLD_DENSE_FUNCTIONS
}  // namespace avx512

#undef PAGEFOLD_DENSE_FUNCTIONS
#undef PAGEFOLD_MATMUL_PARTS

}  // namespace pagefold::kernels
