#include "kernels/keys.h"
#include "kernels/vec_avx2.h"

// Written over the Vec of the header above.
#include "kernels/fp8_avx2.h"

namespace pagefold::kernels {
namespace {

struct Wide {
  static PF_INLINE Floats sqrt(Floats v) { return {_mm256_sqrt_ps(v.a), _mm256_sqrt_ps(v.b)}; }
  static PF_INLINE Floats from_f16(const std::byte* p) {
    const auto* at = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
  }
  static PF_INLINE void from_pairs(const std::byte* p, Floats& even, Floats& odd) {
    const auto* at = reinterpret_cast<const __m256i*>(p);
    const __m256i x = _mm256_loadu_si256(at), y = _mm256_loadu_si256(at + 1);
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(y, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(x, high)),
           _mm256_castsi256_ps(_mm256_and_si256(y, high))};
  }
  static PF_INLINE Floats bits_of(const std::byte* p, int shift, int mask) {
    const auto* at = reinterpret_cast<const __m256i*>(p);
    const __m128i by = _mm_cvtsi32_si128(shift);
    const __m256i bits = _mm256_set1_epi32(mask);
    return {
        _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srl_epi32(_mm256_loadu_si256(at), by), bits)),
        _mm256_cvtepi32_ps(
            _mm256_and_si256(_mm256_srl_epi32(_mm256_loadu_si256(at + 1), by), bits))};
  }
  template <int kStep>
  static PF_INLINE __m256 butterfly8(__m256 x) {
    const __m256 other = kStep == 1   ? _mm256_permute_ps(x, 0xb1)
                         : kStep == 2 ? _mm256_permute_ps(x, 0x4e)
                                      : _mm256_permute2f128_ps(x, x, 1);
    constexpr int kMinus = kStep == 1 ? 0xaa : kStep == 2 ? 0xcc : 0xf0;
    return _mm256_blend_ps(_mm256_add_ps(other, x), _mm256_sub_ps(other, x), kMinus);
  }
  template <int kStep>
  static PF_INLINE Floats butterfly(Floats x) {
    if constexpr (kStep == 8)
      return {_mm256_add_ps(x.a, x.b), _mm256_sub_ps(x.a, x.b)};
    else
      return {butterfly8<kStep>(x.a), butterfly8<kStep>(x.b)};
  }
};

}  // namespace
}  // namespace pagefold::kernels

// Written once over the Vec of the header above.
#include "kernels/keys_tile.h"

namespace pagefold::kernels::avx2 {

void unpack_keys(const KvLayout& layout, const std::byte* strip, float* keys) {
  unpack_strip(layout, strip, keys);
}
void score_strip(const StripScoreArgs& args) { score_all_heads(args); }
void dot_strips(const StripDotArgs& args) { dot_all<4>(args); }
void move_lanes(const KvLayout& layout, const LaneMoves& moves) {
  scalar::move_lanes(layout, moves);
}

void hadamard(float* row, int head_dim) {
  if (head_dim % 16 != 0) return scalar::hadamard(row, head_dim);
  hadamard_row(row, head_dim);
}

}  // namespace pagefold::kernels::avx2
