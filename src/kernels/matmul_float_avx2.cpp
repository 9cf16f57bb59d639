// Unquantised weights. An output's sum ascends over its inputs in one accumulator.
#include "kernels/simd_avx2.h"

namespace pagefold::kernels::avx2 {
namespace {

// How 16 outputs' weights of kStep neighbouring inputs are read: w[step][half].
struct F32 {
  static constexpr int kStep = 1;
  PF_ISA_INLINE static void load(const std::byte* tile, int64_t k, __m256 (*w)[2]) {
    PF_UNROLL
    for (int h = 0; h < 2; ++h) w[0][h] = _mm256_castsi256_ps(load_32(tile + k * 64 + h * 32));
  }
};
struct F16 {
  static constexpr int kStep = 1;
  PF_ISA_INLINE static void load(const std::byte* tile, int64_t k, __m256 (*w)[2]) {
    PF_UNROLL
    for (int h = 0; h < 2; ++h) w[0][h] = load_meta(tile + k * 32, true, h);
  }
};
// The two bfloat16 numbers of each 32-bit lane.
PF_ISA_INLINE __m256 first_of_pair(__m256i pair) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
}
PF_ISA_INLINE __m256 second_of_pair(__m256i pair) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
struct Bf16 {
  static constexpr int kStep = 2;
  PF_ISA_INLINE static void load(const std::byte* tile, int64_t k, __m256 (*w)[2]) {
    PF_UNROLL
    for (int h = 0; h < 2; ++h) {
      const __m256i pair = load_32(tile + k * 32 + h * 32);
      w[0][h] = first_of_pair(pair);
      w[1][h] = second_of_pair(pair);
    }
  }
};

PF_ISA_INLINE __m256 broadcast(const float* x) { return _mm256_set1_ps(*x); }
PF_ISA_INLINE __m256 broadcast(const uint16_t* x) {
  return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(*x) << 16));
}

// X: float or uint16_t (bfloat16) inputs.
template <class W, class X>
struct FloatKernel {
  static constexpr int kMaxRows = 6, kTiles = 1, kFewRowTiles = 2;
  TileSource source;

  template <int T, int R>
  static void run(const FloatKernel& self, int tile, int row, const Ahead& ahead) {
    const MatmulArgs& a = *self.source.args;
    const int n = a.weights->shape.n_in;
    const X* x = static_cast<const X*>(a.x) + row * a.ldx;
    const int64_t ldx = a.ldx;
    const std::byte* weights[T];
    __m256 acc[T][R][2];
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      weights[t] = self.source.tile(tile + t);
      PF_UNROLL
      for (int r = 0; r < R; ++r) acc[t][r][0] = acc[t][r][1] = _mm256_setzero_ps();
    }
    __m256 w[T][W::kStep][2];
    int64_t k = 0;
    const auto add = [&](int step) __attribute__((always_inline)) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m256 v = broadcast(x + r * ldx + k + step);
        PF_UNROLL
        for (int t = 0; t < T; ++t) {
          PF_UNROLL
          for (int h = 0; h < 2; ++h)
            acc[t][r][h] = _mm256_fmadd_ps(w[t][step][h], v, acc[t][r][h]);
        }
      }
    };
    FetchAhead next(ahead, n / W::kStep);
    for (; k + W::kStep <= n; k += W::kStep) {
      next.fetch();
      PF_UNROLL
      for (int t = 0; t < T; ++t) W::load(weights[t], k, w[t]);
      PF_UNROLL
      for (int s = 0; s < W::kStep; ++s) add(s);
    }
    if (W::kStep == 2 && k < n) {  // an odd input: the second of its pair does not exist
      PF_UNROLL
      for (int t = 0; t < T; ++t) W::load(weights[t], k, w[t]);
      add(0);
    }
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      PF_UNROLL
      for (int r = 0; r < R; ++r) store_outputs(a, tile + t, row + r, acc[t][r]);
    }
  }
};

template <class W, class X>
void run(const MatmulArgs& a) {
  const FloatKernel<W, X> kernel{{&a, a.weights->shape.tile_bytes()}};
  run_all(kernel, a, static_cast<int64_t>(sizeof(X)) * a.weights->shape.n_in);
}

}  // namespace

void matmul_float(const MatmulArgs& a) {
  switch (a.weights->shape.kind) {
    case PackKind::f32:
      return run<F32, float>(a);
    case PackKind::f16:
      return run<F16, float>(a);
    default:
      return a.input == InputKind::bf16 ? run<Bf16, uint16_t>(a) : run<Bf16, float>(a);
  }
}

}  // namespace pagefold::kernels::avx2
