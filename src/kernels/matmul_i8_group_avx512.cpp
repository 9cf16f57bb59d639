// Quantised weights with int8 inputs, in groups of 64 and more or with zero points. Per output:
//   part = fma(float(dot product), scale_a, part)      a step is 32 inputs, or a group of 16
// and once a group
//   part = fma(-zero, sum of the group's inputs, part)  if there are zero points
//   acc = fma(part, scale_w, acc), then fma(min, that sum, acc) if there are mins
#include "kernels/int8_avx512.h"

namespace pagefold::kernels::avx512 {
namespace {

template <class W, int Step>
struct Int8GroupKernel {
  static constexpr int kMaxRows = 6, kTiles = 2, kFewRowTiles = 1;
  static constexpr int kSubs = kBlockInputs / Step;
  TileSource source;
  BlockLayout layout;
  int first_row;  // of the arrays below: prepare_steps()
  const float* min_sum;
  const int* start;

  // Dot products of a step: sub of a block of `values`.
  template <int T, int R>
  PF_ISA_INLINE static void dot_step(const W& weight, const std::byte* const* tiles, size_t values,
                                     int sub, const int* x, int64_t ldx, const int* start,
                                     int64_t steps, __m512i (*d)[R]) {
    const std::byte* quads[T];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      quads[t] = tiles[t] + values;
      asm("" : "+r"(quads[t]));  // keeps g++ from holding one step's loads for the next
    }
    PF_UNROLL
    for (int r = 0; r < R; ++r) {
      const __m512i first =
          W::kOffset ? _mm512_set1_epi32(start[r * steps]) : _mm512_setzero_si512();
      PF_UNROLL
      for (int t = 0; t < T; ++t) d[t][r] = first;
    }
    PF_UNROLL
    for (int j = 0; j < 8 / kSubs; ++j) {
      const int i = kSubs == 1 && W::kNibbles ? j % 2 * 4 + j / 2 : sub * 4 + j;
      __m512i w[T];
      PF_UNROLL
      for (int t = 0; t < T; ++t) w[t] = weight.load(quads[t], i);
      PF_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m512i four = _mm512_set1_epi32(x[r * ldx + i]);
        PF_UNROLL
        for (int t = 0; t < T; ++t) dot4(d[t][r], w[t], four);
      }
    }
  }

  template <int T, int R>
  static void run(const Int8GroupKernel& self, int tile, int row, const Ahead& ahead) {
    const MatmulArgs& a = *self.source.args;
    const PackedShape& s = a.weights->shape;
    const int64_t blocks = s.n_in / kBlockInputs, steps = blocks * kSubs;
    const int64_t groups = s.n_in / s.group, at_row = row - self.first_row;
    const int per_group = s.group / Step;
    const int8_t* q = a.xq.q + static_cast<int64_t>(row) * s.n_in;
    const float* sa = a.xq.scale + static_cast<int64_t>(row) * blocks;
    const float* min_sum = self.min_sum + at_row * groups;
    const int* start = self.start + at_row * steps;
    const size_t line = self.layout.scale_bytes;
    const std::byte* tiles[T];
    alignas(64) float acc[T][R][kTileRows];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      tiles[t] = self.source.tile(tile + t);
      PF_UNROLL
      for (int r = 0; r < R; ++r) _mm512_store_ps(acc[t][r], _mm512_setzero_ps());
    }
    const W weight(a);
    FetchAhead next(ahead, steps);
    for (int64_t g = 0, step = 0; g < groups; ++g) {
      const int section = static_cast<int>(Step == 16 ? g / 2 : g);
      const int sub = static_cast<int>(Step == 16 ? g % 2 : 0);
      const size_t meta = meta_offset(self.layout, section) + static_cast<size_t>(sub) * line;
      size_t values = values_offset(self.layout, section);
      __m512 part[T][R], zero[T];
      PF_UNROLL
      for (int t = 0; t < T; ++t) {
        zero[t] = s.has_min || s.has_zero ? load_meta(tiles[t] + meta + kSubs * line, s.scale_f16)
                                          : _mm512_setzero_ps();
        PF_UNROLL
        for (int r = 0; r < R; ++r) part[t][r] = _mm512_setzero_ps();
      }
      for (int i = 0; i < per_group; ++i, ++step, values += self.layout.values_bytes) {
        next.fetch();
        const int64_t b = Step == 16 ? step / 2 : step;
        const int* x = reinterpret_cast<const int*>(q + b * kBlockInputs);
        __m512i d[T][R];
        dot_step<T, R>(weight, tiles, values, sub, x, s.n_in / 4, start + step, steps, d);
        PF_UNROLL
        for (int r = 0; r < R; ++r) {
          const __m512 scale = _mm512_set1_ps(sa[r * blocks + b]);
          PF_UNROLL
          for (int t = 0; t < T; ++t) {
            part[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(d[t][r]), scale, part[t][r]);
          }
        }
      }
      PF_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m512 scale = load_meta(tiles[t] + meta, s.scale_f16);
        PF_UNROLL
        for (int r = 0; r < R; ++r) {
          const __m512 inputs = _mm512_set1_ps(min_sum[r * groups + g]);
          __m512 p = part[t][r];
          if (s.has_zero) p = _mm512_fnmadd_ps(zero[t], inputs, p);
          __m512 v = _mm512_fmadd_ps(p, scale, _mm512_load_ps(acc[t][r]));
          if (s.has_min) v = _mm512_fmadd_ps(zero[t], inputs, v);
          _mm512_store_ps(acc[t][r], v);
        }
      }
    }
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) store_outputs(a, tile + t, row + r, _mm512_load_ps(acc[t][r]));
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
    const K kernel{{&a, s.tile_bytes()}, block_layout(s), row, min_sum, start};
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

}  // namespace pagefold::kernels::avx512
