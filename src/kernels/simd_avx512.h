// Pieces that the AVX-512 files share. Internal linkage, always inlined (see packed_layout.h).
#pragma once

#include <immintrin.h>

#include "kernels/matmul_driver.h"

namespace pagefold::kernels::avx512 {
namespace {

PF_ISA_INLINE __m512 load_meta(const std::byte* p, bool f16) {
  return f16 ? _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)))
             : _mm512_load_ps(p);
}

// y[row][16 outputs of the tile] = sum (+ bias) or += it. i8x2: rows count twice.
PF_ISA_INLINE void store_outputs(const MatmulArgs& a, int tile, int row, __m512 sum) {
  const int first = tile * kTileRows;
  const int n = a.weights->shape.n_out - first;
  const auto mask =
      n >= kTileRows ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << n) - 1);
  const OutputRow out = output_row(a, row);
  if (out.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, out.bias + first));
  float* y = out.y + first;
  if (out.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), sum);
  _mm512_mask_storeu_ps(y, mask, sum);
}

}  // namespace
}  // namespace pagefold::kernels::avx512
