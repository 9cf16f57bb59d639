// Quantised weights with int8 inputs, in groups of 64 and more or with zero points: the operations
// of matmul_i8_group_avx512.cpp, on exact integers.
#include "kernels/int8_avx2.h"

namespace pagefold::kernels::avx2 {
namespace {

template <class W, int Step>
struct Int8GroupKernel {
  static constexpr int kMaxRows = 4, kTiles = 1, kFewRowTiles = 1;
  static constexpr int kSubs = kBlockInputs / Step;
  TileSource source;
  BlockLayout layout;
  int first_row;  // of the arrays below: prepare_steps()
  const float* min_sum;

  // Eight outputs of a tile: half h.
  template <int R>
  PF_ISA_INLINE static void half_tile(const Int8GroupKernel& self, const std::byte* tile, int row,
                                      int h, FetchAhead& next, float (*acc)[2][8]) {
    const MatmulArgs& a = *self.source.args;
    const PackedShape& s = a.weights->shape;
    const int64_t blocks = s.n_in / kBlockInputs;
    const int64_t groups = s.n_in / s.group, at_row = row - self.first_row;
    const int8_t* q = a.xq.q + static_cast<int64_t>(row) * s.n_in;
    const float* sa = a.xq.scale + static_cast<int64_t>(row) * blocks;
    const float* min_sum = self.min_sum + at_row * groups;
    const size_t line = self.layout.scale_bytes;
    const W weight(a);
    for (int64_t g = 0, step = 0; g < groups; ++g) {
      const int section = static_cast<int>(Step == 16 ? g / 2 : g);
      const int sub = static_cast<int>(Step == 16 ? g % 2 : 0);
      const std::byte* meta =
          tile + meta_offset(self.layout, section) + static_cast<size_t>(sub) * line;
      const std::byte* values = tile + values_offset(self.layout, section) + h * 32;
      const __m256 zero = s.has_min || s.has_zero ? load_meta(meta + kSubs * line, s.scale_f16, h)
                                                  : _mm256_setzero_ps();
      __m256 part[R];
      PF_UNROLL
      for (int r = 0; r < R; ++r) part[r] = _mm256_setzero_ps();
      for (int i = 0; i < s.group / Step; ++i, ++step, values += self.layout.values_bytes) {
        next.fetch();
        const int64_t b = Step == 16 ? step / 2 : step;
        const int* x = reinterpret_cast<const int*>(q + b * kBlockInputs);
        __m256i d[R];
        if (Step == 16 && sub == 1) {
          weight.template dot<R, 8 / kSubs>(values, 4, x, s.n_in / 4, d);
        } else {
          weight.template dot<R, 8 / kSubs>(values, 0, x, s.n_in / 4, d);
        }
        PF_UNROLL
        for (int r = 0; r < R; ++r) {
          part[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(d[r]), _mm256_set1_ps(sa[r * blocks + b]),
                                    part[r]);
        }
      }
      const __m256 scale = load_meta(meta, s.scale_f16, h);
      PF_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m256 inputs = _mm256_set1_ps(min_sum[r * groups + g]);
        if (s.has_zero) part[r] = _mm256_fnmadd_ps(zero, inputs, part[r]);
        __m256 v = _mm256_fmadd_ps(part[r], scale, _mm256_load_ps(acc[r][h]));
        if (s.has_min) v = _mm256_fmadd_ps(zero, inputs, v);
        _mm256_store_ps(acc[r][h], v);
      }
    }
  }

  template <int T, int R>
  static void run(const Int8GroupKernel& self, int tile, int row, const Ahead& ahead) {
    static_assert(T == 1);
    alignas(32) float acc[R][2][8] = {};
    FetchAhead next(ahead, int64_t{2} * self.source.args->weights->shape.n_in / Step);
    half_tile<R>(self, self.source.tile(tile), row, 0, next, acc);
    half_tile<R>(self, self.source.tile(tile), row, 1, next, acc);
    for (int r = 0; r < R; ++r) {
      const __m256 v[2] = {_mm256_load_ps(acc[r][0]), _mm256_load_ps(acc[r][1])};
      store_outputs(*self.source.args, tile, row + r, v);
    }
  }
};

template <class W, int Step>
void run(const MatmulArgs& a) {
  using K = Int8GroupKernel<W, Step>;
  const PackedShape& s = a.weights->shape;
  const int64_t steps = s.n_in / Step, groups = s.n_in / s.group;
  const int panel = panel_rows<K>(s.n_in + steps * 8);
  const int64_t most = a.rows < panel ? a.rows : panel;
  auto* start =
      reinterpret_cast<int*>(thread_scratch(static_cast<size_t>(most * (steps + groups)) * 4));
  auto* min_sum = reinterpret_cast<float*>(start + most * steps);
  for (int row = 0; row < a.rows; row += panel) {
    const int rows = a.rows - row < panel ? a.rows - row : panel;
    prepare_steps(a, row, rows, start, min_sum);
    const K kernel{{&a, s.tile_bytes()}, block_layout(s), row, min_sum};
    run_panel(kernel, a.tile_begin, a.tile_end, row, row + rows);
  }
}

}  // namespace

void matmul_i8_group(const MatmulArgs& a) {
  const PackedShape& s = a.weights->shape;
  if (s.kind == PackKind::w4) return s.group == 16 ? run<W4, 16>(a) : run<W4, 32>(a);
  if (s.kind == PackKind::t4) return run<T4, 32>(a);  // no zero points: groups of 64 and more
  return s.group == 16 ? run<W8, 16>(a) : run<W8, 32>(a);
}

}  // namespace pagefold::kernels::avx2
