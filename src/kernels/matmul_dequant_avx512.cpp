// Quantised weights in groups of 16 or 32 with float inputs: weights become floats in registers,
// v = fma(q, scale, min) with one rounding, and acc = fma(v, x, acc) over ascending inputs in one
// accumulator. min is -zero * scale where there are zero points.
#include "kernels/weights_avx512.h"

namespace pagefold::kernels::avx512 {
namespace {

template <class W, bool Zero>
struct DequantKernel {
  static constexpr int kMaxRows = 8, kTiles = 2, kFewRowTiles = 4;
  TileSource source;
  BlockLayout layout;

  // 16 inputs: half a block, never more than a group.
  template <int T, int R, int Half>
  PF_ISA_INLINE static void half_block(const DequantKernel& self, const W& w,
                                       const std::byte* const* tiles, size_t meta, size_t values,
                                       const float* x, int64_t ldx, __m512 (*acc)[R]) {
    const PackedShape& s = self.source.args->weights->shape;
    const size_t line = self.layout.scale_bytes;
    const size_t subs = s.group == 16 ? 2 : 1;
    const size_t sub = s.group == 16 ? Half : 0;
    __m512 scale[T], min[T];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      scale[t] = load_meta(tiles[t] + meta + sub * line, s.scale_f16);
      if constexpr (W::kScale != 1.0f)
        scale[t] = _mm512_mul_ps(scale[t], _mm512_set1_ps(W::kScale));
      min[t] = _mm512_setzero_ps();
      if (Zero || s.has_min) {
        min[t] = load_meta(tiles[t] + meta + (subs + sub) * line, s.scale_f16);
        if constexpr (Zero) min[t] = _mm512_fnmadd_ps(min[t], scale[t], _mm512_setzero_ps());
      }
    }
    const auto value = [&](__m512 v, int t) __attribute__((always_inline)) {
      return _mm512_fmadd_ps(v, scale[t], min[t]);
    };
    multiply_half<T, R, Half>(w, tiles, values, value, x, ldx, acc);
  }

  template <int T, int R>
  static void run(const DequantKernel& self, int tile, int row, const Ahead& ahead) {
    const MatmulArgs& a = *self.source.args;
    const int blocks = a.weights->shape.n_in / kBlockInputs;
    const float* x = static_cast<const float*>(a.x) + row * a.ldx;
    const std::byte* tiles[T];
    __m512 acc[T][R];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      tiles[t] = self.source.tile(tile + t);
      PF_UNROLL
      for (int r = 0; r < R; ++r) acc[t][r] = _mm512_setzero_ps();
    }
    const W w(a);
    FetchAhead next(ahead, blocks);
    for (int b = 0; b < blocks; ++b, x += kBlockInputs) {
      next.fetch();
      const size_t meta = meta_offset(self.layout, b);
      const size_t values = values_offset(self.layout, b);
      half_block<T, R, 0>(self, w, tiles, meta, values, x, a.ldx, acc);
      half_block<T, R, 1>(self, w, tiles, meta, values, x, a.ldx, acc);
    }
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) store_outputs(a, tile + t, row + r, acc[t][r]);
    }
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

}  // namespace pagefold::kernels::avx512
