// Quantised weights in groups of 64 and more with float inputs. Per output and group:
//   part = fma(q, x, part) over the group's ascending inputs, in one accumulator
//   part = fma(-zero, sum of the group's inputs, part)      if there are zero points
//   acc = fma(part, scale, acc), then fma(min, sum, acc)    if there are mins
#include "kernels/weights_avx512.h"

namespace pagefold::kernels::avx512 {
namespace {

// Sums of the inputs of each group for rows [row, row + rows): [rows][groups].
void sum_groups(const MatmulArgs& a, int row, int rows, float* sums) {
  const PackedShape& s = a.weights->shape;
  for (int r = 0; r < rows; ++r) {
    const float* x = static_cast<const float*>(a.x) + (row + r) * a.ldx;
    for (int g = 0; g < s.n_in / s.group; ++g, x += s.group) {
      __m512 sum = _mm512_loadu_ps(x);
      for (int k = 16; k < s.group; k += 16) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + k));
      *sums++ = _mm512_reduce_add_ps(sum);
    }
  }
}

template <class W>
struct GroupKernel {
  static constexpr int kMaxRows = 8, kTiles = 2, kFewRowTiles = 4;
  TileSource source;
  BlockLayout layout;
  int first_row;
  const float* sums;  // [row - first_row][group], where the weights have mins or zero points

  // Adds the group's sums to acc, which lies in memory: registers are for the sums in progress.
  template <int T, int R>
  PF_ISA_INLINE static void add_group(const GroupKernel& self, const std::byte* const* tiles,
                                      size_t meta, const float* sums, int64_t ld, __m512 (*part)[R],
                                      float (*acc)[R][kTileRows]) {
    const PackedShape& s = self.source.args->weights->shape;
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      const __m512 scale =
          _mm512_mul_ps(load_meta(tiles[t] + meta, s.scale_f16), _mm512_set1_ps(W::kScale));
      const __m512 offset = s.has_min || s.has_zero
                                ? load_meta(tiles[t] + meta + self.layout.scale_bytes, s.scale_f16)
                                : _mm512_setzero_ps();
      PF_UNROLL
      for (int r = 0; r < R; ++r) {
        __m512 p = part[t][r];
        if (s.has_zero) p = _mm512_fnmadd_ps(offset, _mm512_set1_ps(sums[r * ld]), p);
        __m512 sum = _mm512_fmadd_ps(p, scale, _mm512_load_ps(acc[t][r]));
        if (s.has_min) sum = _mm512_fmadd_ps(offset, _mm512_set1_ps(sums[r * ld]), sum);
        _mm512_store_ps(acc[t][r], sum);
      }
    }
  }

  template <int T, int R>
  static void run(const GroupKernel& self, int tile, int row, const Ahead& ahead) {
    const MatmulArgs& a = *self.source.args;
    const PackedShape& s = a.weights->shape;
    const int groups = s.n_in / s.group;
    const float* x = static_cast<const float*>(a.x) + row * a.ldx;
    const float* sums = self.sums + int64_t{row - self.first_row} * groups;
    const std::byte* tiles[T];
    alignas(64) float acc[T][R][kTileRows];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      tiles[t] = self.source.tile(tile + t);
      PF_UNROLL
      for (int r = 0; r < R; ++r) _mm512_store_ps(acc[t][r], _mm512_setzero_ps());
    }
    const W w(a);
    const auto value = [](__m512 v, int) __attribute__((always_inline)) { return v; };
    FetchAhead next(ahead, s.n_in / kBlockInputs);
    for (int g = 0; g < groups; ++g) {
      __m512 part[T][R];
      PF_UNROLL
      for (int t = 0; t < T; ++t) {
        PF_UNROLL
        for (int r = 0; r < R; ++r) part[t][r] = _mm512_setzero_ps();
      }
      size_t values = values_offset(self.layout, g);
      for (int b = 0; b < self.layout.section_blocks; ++b, x += kBlockInputs) {
        next.fetch();
        multiply_half<T, R, 0>(w, tiles, values, value, x, a.ldx, part);
        multiply_half<T, R, 1>(w, tiles, values, value, x, a.ldx, part);
        values += self.layout.values_bytes;
      }
      add_group<T, R>(self, tiles, meta_offset(self.layout, g), sums + g, groups, part, acc);
    }
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) store_outputs(a, tile + t, row + r, _mm512_load_ps(acc[t][r]));
    }
  }
};

template <class W>
void run(const MatmulArgs& a) {
  using K = GroupKernel<W>;
  const PackedShape& s = a.weights->shape;
  const bool offsets = s.has_min || s.has_zero;
  const int64_t groups = s.n_in / s.group;
  const int panel = panel_rows<K>(4 * (s.n_in + groups));
  const int64_t most = a.rows < panel ? a.rows : panel;
  auto* sums = reinterpret_cast<float*>(thread_scratch(static_cast<size_t>(most * groups) * 4));
  for (int row = 0; row < a.rows; row += panel) {
    const int rows = a.rows - row < panel ? a.rows - row : panel;
    if (offsets) sum_groups(a, row, rows, sums);
    const K kernel{{&a, s.tile_bytes()}, block_layout(s), row, sums};
    run_panel(kernel, a.tile_begin, a.tile_end, row, row + rows);
  }
}

}  // namespace

void matmul_grouped(const MatmulArgs& a) {
  switch (a.weights->shape.kind) {
    case PackKind::w4:
      return run<W4>(a);
    case PackKind::t4:
      return run<T4>(a);
    case PackKind::fp8:
      return run<Fp8>(a);
    default:
      return run<W8>(a);
  }
}

}  // namespace pagefold::kernels::avx512
