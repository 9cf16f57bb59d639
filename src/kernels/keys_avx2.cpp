#include "kernels/keys.h"
#include "kernels/vec_avx2.h"

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
};

}  // namespace
}  // namespace pagefold::kernels

// Written once over the Vec of the header above.
#include "kernels/keys_tile.h"

namespace pagefold::kernels::avx2 {

void unpack_keys(const KvLayout& layout, const std::byte* strip, float* keys) {
  if (is_compact(layout)) return scalar::unpack_keys(layout, strip, keys);
  unpack_strip(layout, strip, keys);
}
void score_strip(const StripScoreArgs& args) { score_all_heads(args); }
void dot_strips(const StripDotArgs& args) { dot_all<4>(args); }
void move_lanes(const KvLayout& layout, const LaneMoves& moves) {
  scalar::move_lanes(layout, moves);
}

void hadamard(float* row, int head_dim) { scalar::hadamard(row, head_dim); }

}  // namespace pagefold::kernels::avx2
