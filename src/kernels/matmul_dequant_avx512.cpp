// Quantised weights with float inputs: weights become floats in registers, v = fma(q, scale, min)
// with one rounding, and acc = fma(v, x, acc) over ascending inputs in one accumulator.
#include "kernels/simd_avx512.h"

namespace pagefold::kernels::avx512 {
namespace {

// 16 weights (one input) out of a register that holds four inputs of each of 16 outputs.
// Float tables and shuffles replace mask-and-convert: fewer operations on the busy ports.
struct W4 {
  __m512 table;  // vpermps takes an index modulo 16: no mask is needed
  PF_ISA_INLINE W4()
      : table(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)) {}
  static constexpr size_t kHalfBytes = 0;  // both halves of a block share their bytes
  template <int Half, int B>
  PF_ISA_INLINE __m512 weight(__m512i quad) const {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(quad, B * 8 + Half * 4), table);
  }
};
struct W8 {
  __m512i magic;  // 2^23 as a float; its lowest byte is where an unsigned byte counts units
  PF_ISA_INLINE W8() : magic(_mm512_set1_epi32(0x4b000000)) {}
  static constexpr size_t kHalfBytes = 256;
  template <int Half, int B>
  PF_ISA_INLINE __m512 weight(__m512i quad) const {
    const __m512i pick = _mm512_broadcast_i32x4(
        _mm_setr_epi8(B, 0, 0, 0, 4 + B, 0, 0, 0, 8 + B, 0, 0, 0, 12 + B, 0, 0, 0));
    const __m512i f = _mm512_mask_shuffle_epi8(magic, 0x1111111111111111ull, quad, pick);
    return _mm512_sub_ps(_mm512_castsi512_ps(f), _mm512_set1_ps(0x1p23f + 128.0f));
  }
};

template <class W>
struct DequantKernel {
  static constexpr int kMaxRows = 8, kTiles = 2, kFewRowTiles = 4;
  TileSource source;
  BlockLayout layout;

  template <int T, int R, int Half, int B>
  PF_ISA_INLINE static void input(const W& w, const __m512i* quad, const __m512* scale,
                                  const __m512* min, const float* x, int64_t ldx,
                                  __m512 (*acc)[R]) {
    __m512 v[T];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      v[t] = _mm512_fmadd_ps(w.template weight<Half, B>(quad[t]), scale[t], min[t]);
    }
    PF_UNROLL
    for (int r = 0; r < R; ++r) {
      const __m512 f = _mm512_set1_ps(x[r * ldx + B]);
      PF_UNROLL
      for (int t = 0; t < T; ++t) acc[t][r] = _mm512_fmadd_ps(v[t], f, acc[t][r]);
    }
  }

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
      min[t] = s.has_min ? load_meta(tiles[t] + meta + (subs + sub) * line, s.scale_f16)
                         : _mm512_setzero_ps();
    }
    PF_UNROLL
    for (int j = 0; j < 4; ++j) {
      __m512i quad[T];
      PF_UNROLL
      for (int t = 0; t < T; ++t) {
        quad[t] = _mm512_load_si512(tiles[t] + values + Half * W::kHalfBytes +
                                    static_cast<size_t>(j) * 64);
      }
      const float* at = x + Half * 16 + j * 4;
      input<T, R, Half, 0>(w, quad, scale, min, at, ldx, acc);
      input<T, R, Half, 1>(w, quad, scale, min, at, ldx, acc);
      input<T, R, Half, 2>(w, quad, scale, min, at, ldx, acc);
      input<T, R, Half, 3>(w, quad, scale, min, at, ldx, acc);
    }
  }

  template <int T, int R>
  static void run(const DequantKernel& self, int tile, int row) {
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
    const W w;
    for (int b = 0; b < blocks; ++b, x += kBlockInputs) {
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

}  // namespace pagefold::kernels::avx512
