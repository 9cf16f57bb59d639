// Quantised weights with int8 inputs. The float operations are those of matmul_i8_avx512.cpp, and
// the integers are exact: vpmaddubsw saturates at 16 bits, so its operands are kept small enough.
#include "kernels/int8_avx2.h"

namespace pagefold::kernels::avx2 {
namespace {

template <class W, int Group>
struct Int8Kernel {
  static constexpr int kMaxRows = 4, kTiles = 1, kFewRowTiles = 1;
  static constexpr int kSubs = kBlockInputs / Group;
  TileSource source;
  BlockLayout layout;
  int first_row;         // of min_sum
  const float* min_sum;  // prepare_groups()

  template <int T, int R>
  static void run(const Int8Kernel& self, int tile, int row, const Ahead& ahead) {
    static_assert(T == 1);
    const MatmulArgs& a = *self.source.args;
    const PackedShape& s = a.weights->shape;
    const std::byte* weights = self.source.tile(tile);
    const int blocks = s.n_in / kBlockInputs;
    const int64_t groups = static_cast<int64_t>(blocks) * kSubs;
    const int8_t* q = a.xq.q + static_cast<int64_t>(row) * s.n_in;
    const float* sa = a.xq.scale + static_cast<int64_t>(row) * blocks;
    const float* min_sum = self.min_sum + (row - self.first_row) * groups;
    __m256 acc[R][2];
    PF_UNROLL
    for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    const W weight(a);
    FetchAhead next(ahead, blocks);
    for (int b = 0; b < blocks; ++b) {
      next.fetch();
      const std::byte* meta = weights + meta_offset(self.layout, b);
      const std::byte* values = weights + values_offset(self.layout, b);
      const int* x = reinterpret_cast<const int*>(q + static_cast<int64_t>(b) * kBlockInputs);
      PF_UNROLL
      for (int g = 0; g < kSubs; ++g) {
        const float* group_sum = min_sum + static_cast<int64_t>(b) * kSubs + g;
        PF_UNROLL
        for (int h = 0; h < 2; ++h) {
          __m256i d[R];
          weight.template dot<R, 8 / kSubs>(values + h * 32, g * 4, x, s.n_in / 4, d);
          const __m256 scale =
              load_meta(meta + static_cast<size_t>(g) * self.layout.scale_bytes, s.scale_f16, h);
          PF_UNROLL
          for (int r = 0; r < R; ++r) {
            const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(sa[r * blocks + b]));
            acc[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(d[r]), factor, acc[r][h]);
          }
          if (!s.has_min) continue;
          const __m256 min = load_meta(
              meta + static_cast<size_t>(kSubs + g) * self.layout.scale_bytes, s.scale_f16, h);
          PF_UNROLL
          for (int r = 0; r < R; ++r) {
            acc[r][h] = _mm256_fmadd_ps(min, _mm256_set1_ps(group_sum[r * groups]), acc[r][h]);
          }
        }
      }
    }
    PF_UNROLL
    for (int r = 0; r < R; ++r) store_outputs(a, tile, row + r, acc[r]);
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
    const K kernel{{&a, s.tile_bytes()}, block_layout(s), row, min_sum};
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

}  // namespace pagefold::kernels::avx2
