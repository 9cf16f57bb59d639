#include "kernels/keys.h"
#include "kernels/vec_avx512.h"

namespace pagefold::kernels {
namespace {

struct Wide {
  // Reciprocal square root and one step of Newton: the instruction takes 19 cycles a register.
  // Zero gives 1e-19.
  static PF_INLINE __m512 sqrt(__m512 v) {
    v = _mm512_max_ps(v, _mm512_set1_ps(0x1p-126f));
    const __m512 r = _mm512_rsqrt14_ps(v);
    const __m512 s = _mm512_mul_ps(v, r);
    const __m512 error = _mm512_fnmadd_ps(s, s, v);
    return _mm512_fmadd_ps(error, _mm512_mul_ps(r, _mm512_set1_ps(0.5f)), s);
  }
  static PF_INLINE __m512 from_f16(const std::byte* p) { return load_half16(p, 0xffff); }
  static PF_INLINE void from_pairs(const std::byte* p, __m512& even, __m512& odd) {
    const __m512i x = _mm512_loadu_si512(p);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    odd =
        _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

}  // namespace
}  // namespace pagefold::kernels

// Written once over the Vec of the header above.
#include "kernels/keys_tile.h"

namespace pagefold::kernels::avx512 {
namespace {

// rows of 16 four-byte elements: a register is permuted and only the target lanes are stored.
void move_words(const LaneMoves& m, int rows) {
  alignas(64) int32_t index[kStripSlots] = {};
  unsigned mask = 0;
  for (int i = 0; i < m.n; ++i) {
    index[m.to_lane[i]] = m.from_lane[i];
    mask |= 1u << m.to_lane[i];
  }
  const __m512i lanes = _mm512_load_si512(index);
  for (int r = 0; r < rows; ++r) {
    const __m512i x = _mm512_loadu_si512(m.from + int64_t{r} * 64);
    _mm512_mask_storeu_epi32(m.to + int64_t{r} * 64, static_cast<__mmask16>(mask),
                             _mm512_permutexvar_epi32(lanes, x));
  }
}

void move_halves(const LaneMoves& m, int rows) {
  alignas(32) int16_t index[kStripSlots] = {};
  unsigned mask = 0;
  for (int i = 0; i < m.n; ++i) {
    index[m.to_lane[i]] = m.from_lane[i];
    mask |= 1u << m.to_lane[i];
  }
  const __m256i lanes = _mm256_load_si256(reinterpret_cast<const __m256i*>(index));
  for (int r = 0; r < rows; ++r) {
    const __m256i x =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(m.from + int64_t{r} * 32));
    _mm256_mask_storeu_epi16(m.to + int64_t{r} * 32, static_cast<__mmask16>(mask),
                             _mm256_permutexvar_epi16(lanes, x));
  }
}

// [8][head_dim][2]: the slot's half of each pair. head_dim is a multiple of 8.
void move_pairs(const std::byte* from, std::byte* to, int dim, const LaneMoves& m) {
  for (int i = 0; i < m.n; ++i) {
    const int a = m.from_lane[i], b = m.to_lane[i];
    const std::byte* source = from + int64_t{a / 2} * dim * 4;
    std::byte* target = to + int64_t{b / 2} * dim * 4;
    const __m512i left = _mm512_set1_epi32(b % 2 > a % 2 ? 16 : 0);
    const __m512i right = _mm512_set1_epi32(a % 2 > b % 2 ? 16 : 0);
    const uint32_t half = b % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
    for (int d = 0; d < dim; d += 16) {
      const bool whole = dim - d >= 16;
      const __m512i x =
          _mm512_maskz_loadu_epi32(static_cast<__mmask16>(whole ? 0xffff : 0xff), source + d * 4);
      _mm512_mask_storeu_epi16(target + d * 4, whole ? half : half & 0xffff,
                               _mm512_srlv_epi32(_mm512_sllv_epi32(x, left), right));
    }
  }
}

}  // namespace

void unpack_keys(const KvLayout& layout, const std::byte* strip, float* keys) {
  if (is_compact(layout)) return scalar::unpack_keys(layout, strip, keys);
  unpack_strip(layout, strip, keys);
}
void score_strip(const StripScoreArgs& args) { score_all_heads(args); }
void dot_strips(const StripDotArgs& args) { dot_all<8>(args); }

void hadamard(float* row, int head_dim) { scalar::hadamard(row, head_dim); }

void move_lanes(const KvLayout& layout, const LaneMoves& m) {
  if (is_compact(layout)) return scalar::move_lanes(layout, m);
  if (layout.k_dtype == DType::f32)
    move_words(m, layout.head_dim);
  else if (layout.k_dtype == DType::bf16)
    move_words(m, layout.head_dim / 2);
  else
    move_halves(m, layout.head_dim);

  const std::byte* from = m.from + layout.k_strip_bytes();
  std::byte* to = m.to + layout.k_strip_bytes();
  if (layout.v_dtype == DType::bf16) return move_pairs(from, to, layout.head_dim, m);
  const size_t row = static_cast<size_t>(layout.head_dim) * dtype_bytes(layout.v_dtype);
  for (int i = 0; i < m.n; ++i)
    __builtin_memmove(to + m.to_lane[i] * row, from + m.from_lane[i] * row, row);
}

}  // namespace pagefold::kernels::avx512
