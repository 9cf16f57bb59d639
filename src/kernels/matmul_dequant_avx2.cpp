// Quantised weights in groups of 16 or 32 with float inputs: weights become floats in registers,
// v = fma(q, scale, min) with one rounding, and acc = fma(v, x, acc) over ascending inputs in one
// accumulator. min is -zero * scale where there are zero points.
#include "kernels/weights_avx2.h"

namespace pagefold::kernels::avx2 {
namespace {

template <class W, bool Zero>
struct DequantKernel {
  static constexpr int kMaxRows = 4, kTiles = 1, kFewRowTiles = 1;
  TileSource source;
  BlockLayout layout;

  // 16 inputs: half a block, never more than a group.
  template <int R, int Half>
  PF_ISA_INLINE static void half_block(const DequantKernel& self, const W& w, const std::byte* tile,
                                       size_t meta, size_t values, const float* x, int64_t ldx,
                                       __m256 (*acc)[R][2]) {
    const PackedShape& s = self.source.args->weights->shape;
    const size_t line = self.layout.scale_bytes;
    const size_t subs = s.group == 16 ? 2 : 1;
    const size_t sub = s.group == 16 ? Half : 0;
    __m256 scale[2], min[2];
    PF_UNROLL
    for (int h = 0; h < 2; ++h) {
      scale[h] = load_meta(tile + meta + sub * line, s.scale_f16, h);
      if constexpr (W::kScale != 1.0f)
        scale[h] = _mm256_mul_ps(scale[h], _mm256_set1_ps(W::kScale));
      min[h] = _mm256_setzero_ps();
      if (Zero || s.has_min) {
        min[h] = load_meta(tile + meta + (subs + sub) * line, s.scale_f16, h);
        if constexpr (Zero) min[h] = _mm256_fnmadd_ps(min[h], scale[h], _mm256_setzero_ps());
      }
    }
    const auto value = [&](__m256 v, int, int h) __attribute__((always_inline)) {
      return _mm256_fmadd_ps(v, scale[h], min[h]);
    };
    multiply_half<1, R, Half>(w, &tile, values, value, x, ldx, acc);
  }

  template <int T, int R>
  static void run(const DequantKernel& self, int tile, int row, const Ahead& ahead) {
    static_assert(T == 1);
    const MatmulArgs& a = *self.source.args;
    const int blocks = a.weights->shape.n_in / kBlockInputs;
    const float* x = static_cast<const float*>(a.x) + row * a.ldx;
    const std::byte* weights = self.source.tile(tile);
    __m256 acc[1][R][2];
    PF_UNROLL
    for (int r = 0; r < R; ++r) acc[0][r][0] = acc[0][r][1] = _mm256_setzero_ps();
    const W w(a);
    FetchAhead next(ahead, blocks);
    for (int b = 0; b < blocks; ++b, x += kBlockInputs) {
      next.fetch();
      const size_t meta = meta_offset(self.layout, b);
      const size_t values = values_offset(self.layout, b);
      half_block<R, 0>(self, w, weights, meta, values, x, a.ldx, acc);
      half_block<R, 1>(self, w, weights, meta, values, x, a.ldx, acc);
    }
    PF_UNROLL
    for (int r = 0; r < R; ++r) store_outputs(a, tile, row + r, acc[0][r]);
  }
};

template <class W, bool Zero = false>
void run(const MatmulArgs& a) {
  const PackedShape& s = a.weights->shape;
  const DequantKernel<W, Zero> kernel{{&a, s.tile_bytes()}, block_layout(s)};
  run_all(kernel, a, int64_t{4} * s.n_in);
}

}  // namespace

void matmul_dequant(const MatmulArgs& a) {
  const PackedShape& s = a.weights->shape;
  if (s.group > kBlockInputs) return matmul_grouped(a);
  switch (s.kind) {
    case PackKind::w4:
      return s.has_zero ? run<W4, true>(a) : run<W4>(a);
    case PackKind::t4:
      return run<T4>(a);
    case PackKind::fp8:
      return run<Fp8>(a);
    default:
      return s.has_zero ? run<W8, true>(a) : run<W8>(a);
  }
}

}  // namespace pagefold::kernels::avx2
