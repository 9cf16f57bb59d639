// Quantised weights with int8 inputs (vpdpbusd, weights as the unsigned operand). Per output and
// group, in ascending order:
//   acc = fma(float(integer dot product), scale_w * scale_a, acc)
//   acc = fma(min_w, scale_a * float(sum of the group's inputs), acc)      if there are mins
// The integers are exact, so every instruction set computes the same bits.
#include "kernels/int8_avx512.h"

namespace pagefold::kernels::avx512 {
namespace {

// Group: inputs a scale, 16 or 32.
template <class W, int Group>
struct Int8Kernel {
  static constexpr int kMaxRows = 6, kTiles = 2, kFewRowTiles = 1;
  static constexpr int kSubs = kBlockInputs / Group;
  TileSource source;
  BlockLayout layout;
  int first_row;         // of the two arrays below, [row - first_row][group]
  const float* min_sum;  // scale_a * sum of the group's inputs, the min term's factor
  const int* start;      // kOffset: -128 * sum of the group's inputs, where the dot product starts

  template <int T, int R>
  PF_ISA_INLINE static void begin(const TileSource& source, int tile, const std::byte** tiles,
                                  __m512 (*acc)[R]) {
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      tiles[t] = source.tile(tile + t);
      PF_UNROLL
      for (int r = 0; r < R; ++r) acc[t][r] = _mm512_setzero_ps();
    }
  }
  template <int T, int R>
  PF_ISA_INLINE static void end(const MatmulArgs& a, int tile, int row, const __m512 (*acc)[R]) {
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) store_outputs(a, tile + t, row + r, acc[t][r]);
    }
  }

  // Which quad of a block is the group's j-th one. w4: both nibbles of a byte in turn, so that its
  // register is free again at once.
  PF_ISA_INLINE static constexpr int quad_at(int g, int j) {
    return kSubs == 1 && W::kNibbles ? j % 2 * 4 + j / 2 : g * 4 + j;
  }

  template <int T, int R>
  static void run(const Int8Kernel& self, int tile, int row, const Ahead& ahead) {
    const MatmulArgs& a = *self.source.args;
    const PackedShape& s = a.weights->shape;
    const int blocks = s.n_in / kBlockInputs;
    const int64_t groups = static_cast<int64_t>(blocks) * kSubs;
    const int8_t* q = a.xq.q + static_cast<int64_t>(row) * s.n_in;
    const float* sa = a.xq.scale + static_cast<int64_t>(row) * blocks;
    const float* min_sum = self.min_sum + (row - self.first_row) * groups;
    const int* start = self.start + (row - self.first_row) * groups;
    const std::byte* tiles[T];
    __m512 acc[T][R];
    begin<T, R>(self.source, tile, tiles, acc);
    const W weight(a);
    FetchAhead next(ahead, blocks);
    for (int b = 0; b < blocks; ++b) {
      next.fetch();
      const size_t meta = meta_offset(self.layout, b), values = values_offset(self.layout, b);
      const int* x = reinterpret_cast<const int*>(q + static_cast<int64_t>(b) * kBlockInputs);
      PF_UNROLL
      for (int g = 0; g < kSubs; ++g) {
        const int64_t at = static_cast<int64_t>(b) * kSubs + g;
        const std::byte* quads[T];
        PF_UNROLL
        for (int t = 0; t < T; ++t) {
          quads[t] = tiles[t] + values;
          asm("" : "+r"(quads[t]));  // keeps g++ from holding one group's loads for the next
        }
        __m512i d[T][R];
        PF_UNROLL
        for (int r = 0; r < R; ++r) {
          const __m512i first =
              W::kOffset ? _mm512_set1_epi32(start[r * groups + at]) : _mm512_setzero_si512();
          PF_UNROLL
          for (int t = 0; t < T; ++t) d[t][r] = first;
        }
        PF_UNROLL
        for (int j = 0; j < 8 / kSubs; ++j) {
          const int i = quad_at(g, j);
          __m512i w[T];
          PF_UNROLL
          for (int t = 0; t < T; ++t) w[t] = weight.load(quads[t], i);
          PF_UNROLL
          for (int r = 0; r < R; ++r) {
            const __m512i four = _mm512_set1_epi32(x[r * (s.n_in / 4) + i]);
            PF_UNROLL
            for (int t = 0; t < T; ++t) dot4(d[t][r], w[t], four);
          }
        }
        PF_UNROLL
        for (int t = 0; t < T; ++t) {
          const std::byte* line =
              tiles[t] + meta + static_cast<size_t>(g) * self.layout.scale_bytes;
          const __m512 scale = load_meta(line, s.scale_f16);
          PF_UNROLL
          for (int r = 0; r < R; ++r) {
            const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(sa[r * blocks + b]));
            acc[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(d[t][r]), factor, acc[t][r]);
          }
          if (s.has_min) {
            const __m512 min = load_meta(line + kSubs * self.layout.scale_bytes, s.scale_f16);
            PF_UNROLL
            for (int r = 0; r < R; ++r) {
              acc[t][r] = _mm512_fmadd_ps(min, _mm512_set1_ps(min_sum[r * groups + at]), acc[t][r]);
            }
          }
        }
      }
    }
    end<T, R>(a, tile, row, acc);
  }
};

template <class W, int Group>
void run(const MatmulArgs& a) {
  using K = Int8Kernel<W, Group>;
  const PackedShape& s = a.weights->shape;
  const int64_t groups = s.n_in / Group;
  const int panel = panel_rows<K>(s.n_in + groups * 12);
  const int64_t most = a.rows < panel ? a.rows : panel;
  auto* min_sum = reinterpret_cast<float*>(thread_scratch(static_cast<size_t>(most * groups) * 8));
  auto* start = reinterpret_cast<int*>(min_sum + most * groups);
  for (int row = 0; row < a.rows; row += panel) {
    const int rows = a.rows - row < panel ? a.rows - row : panel;
    prepare_groups(a, row, rows, min_sum, start);
    const K kernel{{&a, s.tile_bytes()}, block_layout(s), row, min_sum, start};
    run_panel(kernel, a.tile_begin, a.tile_end, row, row + rows);
  }
}

}  // namespace

void matmul_i8(const MatmulArgs& a) {
  const PackedShape& s = a.weights->shape;
  if (sums_groups(s)) return matmul_i8_group(a);
  if (s.kind == PackKind::w4) return s.group == 32 ? run<W4, 32>(a) : run<W4, 16>(a);
  if (s.kind == PackKind::t4) return s.group == 32 ? run<T4, 32>(a) : run<T4, 16>(a);
  return s.group == 32 ? run<W8, 32>(a) : run<W8, 16>(a);
}

}  // namespace pagefold::kernels::avx512
