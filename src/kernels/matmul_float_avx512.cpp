// Unquantised weights. An output's sum ascends over its inputs in one accumulator (bfloat16 inputs:
// over pairs, as vdpbf16ps adds them).
#include "kernels/simd_avx512.h"

namespace pagefold::kernels::avx512 {
namespace {

// How 16 outputs' weights of kStep neighbouring inputs are read: w[0] for the first input, ...
struct F32 {
  static constexpr int kStep = 1;
  PF_ISA_INLINE static void load(const std::byte* tile, int64_t k, __m512* w) {
    w[0] = _mm512_load_ps(tile + k * 64);
  }
};
struct F16 {
  static constexpr int kStep = 1;
  PF_ISA_INLINE static void load(const std::byte* tile, int64_t k, __m512* w) {
    w[0] = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(tile + k * 32)));
  }
};
struct Bf16 {
  static constexpr int kStep = 2;
  PF_ISA_INLINE static void load(const std::byte* tile, int64_t k, __m512* w) {
    const __m512i pair = _mm512_load_si512(tile + k * 32);
    w[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
    w[1] = _mm512_castsi512_ps(
        _mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

template <class W>
struct FloatKernel {
  static constexpr int kMaxRows = 8, kTiles = 2, kFewRowTiles = 1;
  TileSource source;

  template <int T, int R>
  static void run(const FloatKernel& self, int tile, int row, const Ahead& ahead) {
    const MatmulArgs& a = *self.source.args;
    const int n = a.weights->shape.n_in;
    const float* x = static_cast<const float*>(a.x) + row * a.ldx;
    const int64_t ldx = a.ldx;
    const std::byte* weights[T];
    PF_UNROLL
    for (int t = 0; t < T; ++t) weights[t] = self.source.tile(tile + t);
    __m512 acc[T][R];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) acc[t][r] = _mm512_setzero_ps();
    }
    __m512 w[T][W::kStep];
    FetchAhead next(ahead, n / W::kStep);
    int64_t k = 0;
    for (; k + W::kStep <= n; k += W::kStep) {
      next.fetch();
      PF_UNROLL
      for (int t = 0; t < T; ++t) W::load(weights[t], k, w[t]);
      PF_UNROLL
      for (int s = 0; s < W::kStep; ++s) {
        PF_UNROLL
        for (int r = 0; r < R; ++r) {
          const __m512 v = _mm512_set1_ps(x[r * ldx + k + s]);
          PF_UNROLL
          for (int t = 0; t < T; ++t) acc[t][r] = _mm512_fmadd_ps(w[t][s], v, acc[t][r]);
        }
      }
    }
    if (W::kStep == 2 && k < n) {  // an odd input: the second of its pair does not exist
      PF_UNROLL
      for (int t = 0; t < T; ++t) W::load(weights[t], k, w[t]);
      PF_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m512 v = _mm512_set1_ps(x[r * ldx + k]);
        PF_UNROLL
        for (int t = 0; t < T; ++t) acc[t][r] = _mm512_fmadd_ps(w[t][0], v, acc[t][r]);
      }
    }
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) store_outputs(a, tile + t, row + r, acc[t][r]);
    }
  }
};

struct Bf16Kernel {
  static constexpr int kMaxRows = 12, kTiles = 2, kFewRowTiles = 1;
  TileSource source;

  PF_ISA_INLINE static __m512bh load_pair(const std::byte* p) {
    return reinterpret_cast<__m512bh>(_mm512_load_si512(p));
  }
  template <int T, int R>
  static void run(const Bf16Kernel& self, int tile, int row, const Ahead& ahead) {
    const MatmulArgs& a = *self.source.args;
    const int64_t pairs = a.weights->shape.n_in / 2;
    const uint16_t* x = static_cast<const uint16_t*>(a.x) + row * a.ldx;
    const int64_t ldx = a.ldx;
    const std::byte* weights[T];
    PF_UNROLL
    for (int t = 0; t < T; ++t) weights[t] = self.source.tile(tile + t);
    __m512 acc[T][R];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) acc[t][r] = _mm512_setzero_ps();
    }
    FetchAhead next(ahead, pairs);
    for (int64_t p = 0; p < pairs; ++p) {
      next.fetch();
      __m512bh w[T];
      PF_UNROLL
      for (int t = 0; t < T; ++t) w[t] = load_pair(weights[t] + p * 64);
      PF_UNROLL
      for (int r = 0; r < R; ++r) {
        int two;
        __builtin_memcpy(&two, x + r * ldx + p * 2, 4);
        const auto v = reinterpret_cast<__m512bh>(_mm512_set1_epi32(two));
        PF_UNROLL
        for (int t = 0; t < T; ++t) acc[t][r] = _mm512_dpbf16_ps(acc[t][r], w[t], v);
      }
    }
    if (a.weights->shape.n_in % 2 != 0) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto v =
            reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(x[r * ldx + pairs * 2])));
        PF_UNROLL
        for (int t = 0; t < T; ++t) {
          acc[t][r] = _mm512_dpbf16_ps(acc[t][r], load_pair(weights[t] + pairs * 64), v);
        }
      }
    }
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) store_outputs(a, tile + t, row + r, acc[t][r]);
    }
  }
};

template <class K>
void run(const MatmulArgs& a, size_t element_bytes) {
  const K kernel{{&a, a.weights->shape.tile_bytes()}};
  run_all(kernel, a, static_cast<int64_t>(element_bytes) * a.weights->shape.n_in);
}

// bfloat16 inputs as floats, a panel of rows at a time.
void run_widened(const MatmulArgs& a) {
  const int64_t n = a.weights->shape.n_in;
  const int panel = panel_rows<FloatKernel<Bf16>>(4 * n);
  const int most = a.rows < panel ? a.rows : panel;
  auto* wide = reinterpret_cast<float*>(thread_scratch(static_cast<size_t>(most * n) * 4));
  const auto* x = static_cast<const uint16_t*>(a.x);
  for (int row = 0; row < a.rows; row += panel) {
    MatmulArgs part = a;
    part.rows = a.rows - row < panel ? a.rows - row : panel;
    for (int r = 0; r < part.rows; ++r) {
      for (int64_t k = 0; k < n; k += 16) {
        const auto m = n - k >= 16 ? static_cast<__mmask16>(0xffff)
                                   : static_cast<__mmask16>((1u << (n - k)) - 1);
        const __m256i half = _mm256_maskz_loadu_epi16(m, x + (row + r) * a.ldx + k);
        _mm512_mask_storeu_epi32(wide + r * n + k, m,
                                 _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
      }
    }
    part.input = InputKind::f32;
    part.x = wide;
    part.ldx = n;
    part.y = a.y + row * a.ldy;
    run<FloatKernel<Bf16>>(part, 4);
  }
}

}  // namespace

void matmul_float(const MatmulArgs& a) {
  switch (a.weights->shape.kind) {
    case PackKind::f32:
      return run<FloatKernel<F32>>(a, 4);
    case PackKind::f16:
      return run<FloatKernel<F16>>(a, 4);
    default:
      if (a.input != InputKind::bf16) return run<FloatKernel<Bf16>>(a, 4);
      return slow_dpbf16() ? run_widened(a) : run<Bf16Kernel>(a, 2);
  }
}

}  // namespace pagefold::kernels::avx512
