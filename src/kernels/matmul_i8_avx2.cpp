// Quantised weights with int8 inputs. The float operations are those of matmul_i8_avx512.cpp, and
// the integers are exact: vpmaddubsw saturates at 16 bits, so its operands are kept small enough.
#include "kernels/simd_avx2.h"

namespace pagefold::kernels::avx2 {
namespace {

// Dot products of N quads (4 inputs each) for 8 outputs and R rows: d[r] (int32).
// w4: 0..15 times -127..127, so 16 products of a 16-bit lane stay below 30481.
struct W4 {
  // quad i of 8: 0..3 in the low nibbles, 4..7 in the high ones
  PF_ISA_INLINE static __m256i load(const std::byte* values, int i) {
    const __m256i v = load_32(values + i % 4 * 64);
    return _mm256_and_si256(i < 4 ? v : _mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
  }
  template <int R, int N>
  PF_ISA_INLINE static void dot(const std::byte* values, int first, const int* x, int64_t ldx,
                                __m256i* d) {
    PF_UNROLL
    for (int r = 0; r < R; ++r) d[r] = _mm256_setzero_si256();
    PF_UNROLL
    for (int i = first; i < first + N; ++i) {
      const __m256i w = load(values, i);
      PF_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m256i v = _mm256_set1_epi32(x[r * ldx + i]);
        d[r] = _mm256_add_epi16(d[r], _mm256_maddubs_epi16(w, v));
      }
    }
    PF_UNROLL
    for (int r = 0; r < R; ++r) d[r] = _mm256_madd_epi16(d[r], _mm256_set1_epi16(1));
  }
};
// w8: |w| <= 128 as the unsigned operand, the input takes w's sign: two products stay below 32513.
struct W8 {
  template <int R, int N>
  PF_ISA_INLINE static void dot(const std::byte* values, int first, const int* x, int64_t ldx,
                                __m256i* d) {
    PF_UNROLL
    for (int r = 0; r < R; ++r) d[r] = _mm256_setzero_si256();
    PF_UNROLL
    for (int i = first; i < first + N; ++i) {
      const __m256i w =
          _mm256_xor_si256(load_32(values + i * 64), _mm256_set1_epi8(static_cast<char>(0x80)));
      const __m256i magnitude = _mm256_abs_epi8(w);
      PF_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m256i v = _mm256_sign_epi8(_mm256_set1_epi32(x[r * ldx + i]), w);
        const __m256i pairs = _mm256_maddubs_epi16(magnitude, v);
        d[r] = _mm256_add_epi32(d[r], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      }
    }
  }
};

template <class W, int Group>
struct Int8Kernel {
  static constexpr int kMaxRows = 4, kTiles = 1, kFewRowTiles = 1;
  static constexpr int kSubs = kBlockInputs / Group;
  TileSource source;
  BlockLayout layout;
  int first_row;         // of min_sum
  const float* min_sum;  // prepare_groups()

  template <int T, int R>
  static void run(const Int8Kernel& self, int tile, int row) {
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
    for (int b = 0; b < blocks; ++b) {
      const std::byte* meta = weights + meta_offset(self.layout, b);
      const std::byte* values = weights + values_offset(self.layout, b);
      const int* x = reinterpret_cast<const int*>(q + static_cast<int64_t>(b) * kBlockInputs);
      PF_UNROLL
      for (int g = 0; g < kSubs; ++g) {
        const float* group_sum = min_sum + static_cast<int64_t>(b) * kSubs + g;
        PF_UNROLL
        for (int h = 0; h < 2; ++h) {
          __m256i d[R];
          W::template dot<R, 8 / kSubs>(values + h * 32, g * 4, x, s.n_in / 4, d);
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
  if (s.kind == PackKind::w4) return s.group == 32 ? run<W4, 32>(a) : run<W4, 16>(a);
  return s.group == 32 ? run<W8, 32>(a) : run<W8, 16>(a);
}

}  // namespace pagefold::kernels::avx2
