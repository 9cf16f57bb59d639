// Quantised weights with float inputs: weights become floats in registers, v = fma(q, scale, min)
// with one rounding, and acc = fma(v, x, acc) over ascending inputs in one accumulator.
#include "kernels/simd_avx2.h"

namespace pagefold::kernels::avx2 {
namespace {

// 8 weights (one input) out of a register that holds four inputs of each of 8 outputs.
struct W4 {
  static constexpr int kHalfBytes = 0;  // both halves of a block share their bytes
  template <int Half, int B>
  PF_ISA_INLINE static __m256 weight(__m256i quad) {
    return _mm256_cvtepi32_ps(
        _mm256_and_si256(_mm256_srli_epi32(quad, B * 8 + Half * 4), _mm256_set1_epi32(15)));
  }
};
struct W8 {
  static constexpr int kHalfBytes = 256;
  template <int Half, int B>
  PF_ISA_INLINE static __m256 weight(__m256i quad) {
    const __m256i byte = _mm256_and_si256(_mm256_srli_epi32(quad, B * 8), _mm256_set1_epi32(255));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(byte, _mm256_set1_epi32(128)));
  }
};

template <class W>
struct DequantKernel {
  static constexpr int kMaxRows = 4, kTiles = 1, kFewRowTiles = 1;
  TileSource source;
  BlockLayout layout;

  template <int R, int Half, int B>
  PF_ISA_INLINE static void input(const __m256i* quad, const __m256* scale, const __m256* min,
                                  const float* x, int64_t ldx, __m256 (*acc)[2]) {
    __m256 v[2];
    PF_UNROLL
    for (int h = 0; h < 2; ++h) {
      v[h] = _mm256_fmadd_ps(W::template weight<Half, B>(quad[h]), scale[h], min[h]);
    }
    PF_UNROLL
    for (int r = 0; r < R; ++r) {
      const __m256 f = _mm256_set1_ps(x[r * ldx + B]);
      PF_UNROLL
      for (int h = 0; h < 2; ++h) acc[r][h] = _mm256_fmadd_ps(v[h], f, acc[r][h]);
    }
  }

  // 16 inputs: half a block, never more than a group.
  template <int R, int Half>
  PF_ISA_INLINE static void half_block(const DequantKernel& self, const std::byte* meta,
                                       const std::byte* values, const float* x, int64_t ldx,
                                       __m256 (*acc)[2]) {
    const PackedShape& s = self.source.args->weights->shape;
    const size_t line = self.layout.scale_bytes;
    const size_t subs = s.group == 16 ? 2 : 1;
    const size_t sub = s.group == 16 ? Half : 0;
    __m256 scale[2], min[2];
    PF_UNROLL
    for (int h = 0; h < 2; ++h) {
      scale[h] = load_meta(meta + sub * line, s.scale_f16, h);
      min[h] =
          s.has_min ? load_meta(meta + (subs + sub) * line, s.scale_f16, h) : _mm256_setzero_ps();
    }
    PF_UNROLL
    for (int j = 0; j < 4; ++j) {
      const std::byte* at = values + Half * W::kHalfBytes + j * 64;
      const __m256i quad[2] = {load_32(at), load_32(at + 32)};
      const float* xj = x + Half * 16 + j * 4;
      input<R, Half, 0>(quad, scale, min, xj, ldx, acc);
      input<R, Half, 1>(quad, scale, min, xj, ldx, acc);
      input<R, Half, 2>(quad, scale, min, xj, ldx, acc);
      input<R, Half, 3>(quad, scale, min, xj, ldx, acc);
    }
  }

  template <int T, int R>
  static void run(const DequantKernel& self, int tile, int row) {
    static_assert(T == 1);
    const MatmulArgs& a = *self.source.args;
    const int blocks = a.weights->shape.n_in / kBlockInputs;
    const float* x = static_cast<const float*>(a.x) + row * a.ldx;
    const std::byte* weights = self.source.tile(tile);
    __m256 acc[R][2];
    PF_UNROLL
    for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (int b = 0; b < blocks; ++b, x += kBlockInputs) {
      const std::byte* meta = weights + meta_offset(self.layout, b);
      const std::byte* values = weights + values_offset(self.layout, b);
      half_block<R, 0>(self, meta, values, x, a.ldx, acc);
      half_block<R, 1>(self, meta, values, x, a.ldx, acc);
    }
    PF_UNROLL
    for (int r = 0; r < R; ++r) store_outputs(a, tile, row + r, acc[r]);
  }
};

template <class W>
void run(const MatmulArgs& a) {
  const PackedShape& s = a.weights->shape;
  const DequantKernel<W> kernel{{&a, s.tile_bytes()}, block_layout(s)};
  run_all(kernel, a, int64_t{4} * s.n_in);
}

}  // namespace

void matmul_dequant(const MatmulArgs& a) {
  return a.weights->shape.kind == PackKind::w4 ? run<W4>(a) : run<W8>(a);
}

}  // namespace pagefold::kernels::avx2
