// What the matmuls of all instruction sets share, compiled for the baseline.
#include <cmath>
#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "kernels/matmul_isa.h"

namespace pagefold::kernels {

void check_matmul_args(const MatmulArgs& a) {
  const PackedShape& s = a.weights->shape;
  PF_CHECK(s.kind != PackKind::t4 || a.weights->table != nullptr, "t4 weights need their table");
  const bool integers = a.input == InputKind::i8 || a.input == InputKind::i8x2;
  PF_CHECK(!integers || takes_int8(s.kind, a.weights->table),
           "int8 inputs do not go with such weights");
  PF_CHECK(a.input != InputKind::bf16 || s.kind == PackKind::bf16,
           "bfloat16 inputs go with bfloat16 weights");
  PF_CHECK(a.tile_begin >= 0 && a.tile_end <= s.tiles());
}

bool slow_dpbf16() {
  static const bool intel = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") != 0;
  }();
  return intel;
}

void prepare_groups(const MatmulArgs& a, int row, int rows, float* min_sum, int* start) {
  const int64_t blocks = a.weights->shape.n_in / 32;
  const bool halves = a.weights->shape.group == 16;
  for (int64_t i = 0; i < rows * blocks; ++i) {
    const int64_t at = row * blocks + i;
    const float scale = a.xq.scale[at];
    const int s0 = a.xq.sums[at * 2], s1 = a.xq.sums[at * 2 + 1];
    if (halves) {
      min_sum[i * 2] = scale * static_cast<float>(s0);
      min_sum[i * 2 + 1] = scale * static_cast<float>(s1);
      start[i * 2] = -128 * s0;
      start[i * 2 + 1] = -128 * s1;
    } else {
      min_sum[i] = scale * static_cast<float>(s0 + s1);
      start[i] = -128 * (s0 + s1);
    }
  }
}

void prepare_steps(const MatmulArgs& a, int row, int rows, int* start, float* min_sum) {
  const PackedShape& s = a.weights->shape;
  const int step = s.group < 32 ? s.group : 32;
  const int64_t steps = s.n_in / step, per_group = s.group / step;
  for (int r = 0; r < rows; ++r) {
    const float* scale = a.xq.scale + (row + r) * int64_t{s.n_in / 32};
    const int32_t* sums = a.xq.sums + (row + r) * int64_t{s.n_in / 16};
    float total = 0;
    for (int64_t i = 0; i < steps; ++i) {
      const int of_step = step == 16 ? sums[i] : sums[i * 2] + sums[i * 2 + 1];
      start[r * steps + i] = -128 * of_step;
      total = std::fma(static_cast<float>(of_step), scale[i * step / 32], total);
      if (i % per_group != per_group - 1) continue;
      min_sum[(r * steps + i) / per_group] = total;
      total = 0;
    }
  }
}

std::byte* thread_scratch(size_t bytes) {
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<std::byte, Free> buffer;
  thread_local size_t size = 0;
  if (size < bytes) {
    size = (bytes + 4095) / 4096 * 4096;
    buffer.reset();
    buffer.reset(static_cast<std::byte*>(std::aligned_alloc(64, size)));
    PF_CHECK(buffer != nullptr, "out of memory");
  }
  return buffer.get();
}

}  // namespace pagefold::kernels
