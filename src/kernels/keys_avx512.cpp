#include "kernels/keys.h"
#include "kernels/vec_avx512.h"

// Written over the Vec of the header above.
#include "kernels/fp8_avx512.h"

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
  static PF_INLINE __m512 bits_of(const std::byte* p, int shift, int mask) {
    const __m512i x = _mm512_srl_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(shift));
    return _mm512_cvtepi32_ps(_mm512_and_si512(x, _mm512_set1_epi32(mask)));
  }
  template <int kStep>
  static PF_INLINE __m512 butterfly(__m512 x) {
    constexpr __mmask16 kMinus = kStep == 1   ? 0xaaaa
                                 : kStep == 2 ? 0xcccc
                                 : kStep == 4 ? 0xf0f0
                                              : 0xff00;
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 other = _mm512_permutexvar_ps(_mm512_xor_si512(lane, _mm512_set1_epi32(kStep)), x);
    return _mm512_mask_sub_ps(_mm512_add_ps(other, x), kMinus, other, x);
  }
};

}  // namespace
}  // namespace pagefold::kernels

// Written once over the Vec of the header above.
#include "kernels/keys_tile.h"

namespace pagefold::kernels::avx512 {
namespace {

// Lanes of a register of elements: which come from where, and which are written.
template <class Index, int kLanes>
struct LaneMap {
  alignas(64) Index from[kLanes] = {};
  uint64_t written = 0;
  PF_INLINE void move(int a, int b) {
    from[b] = static_cast<Index>(a);
    written |= uint64_t{1} << b;
  }
};

// rows of 16 four-byte elements: a register is permuted and only the target lanes are stored.
void move_words(const LaneMoves& m, int rows) {
  LaneMap<int32_t, 16> map;
  for (int i = 0; i < m.n; ++i) map.move(m.from_lane[i], m.to_lane[i]);
  const __m512i lanes = _mm512_load_si512(map.from);
  for (int r = 0; r < rows; ++r) {
    const __m512i x = _mm512_loadu_si512(m.from + int64_t{r} * 64);
    _mm512_mask_storeu_epi32(m.to + int64_t{r} * 64, static_cast<__mmask16>(map.written),
                             _mm512_permutexvar_epi32(lanes, x));
  }
}

// rows of 16 two-byte elements.
void move_halves(const LaneMoves& m, const std::byte* from, std::byte* to, int rows) {
  LaneMap<int16_t, 16> map;
  for (int i = 0; i < m.n; ++i) map.move(m.from_lane[i], m.to_lane[i]);
  const __m256i lanes = _mm256_load_si256(reinterpret_cast<const __m256i*>(map.from));
  for (int r = 0; r < rows; ++r, from += 32, to += 32) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>(map.written),
                             _mm256_permutexvar_epi16(lanes, x));
  }
}

// fp8 keys: a slot has two bytes at each of two places of a row of 64.
void move_fp8_keys(const LaneMoves& m, int rows) {
  LaneMap<int16_t, 32> map;
  for (int i = 0; i < m.n; ++i) {
    const int a = m.from_lane[i], b = m.to_lane[i];
    for (int pair = 0; pair < 2; ++pair)
      map.move(a / 4 * 8 + pair * 4 + a % 4, b / 4 * 8 + pair * 4 + b % 4);
  }
  const __m512i lanes = _mm512_load_si512(map.from);
  for (int r = 0; r < rows; ++r) {
    const __m512i x = _mm512_loadu_si512(m.from + int64_t{r} * 64);
    _mm512_mask_storeu_epi16(m.to + int64_t{r} * 64, static_cast<__mmask32>(map.written),
                             _mm512_permutexvar_epi16(lanes, x));
  }
}

// One slot's bytes in values of 8 bits: in 16 bytes (of four dimensions) byte a_at(i) goes to
// b_at(i), i = 0..3. from, to: the rows of four slots. head_dim is a multiple of 8.
template <class At>
void move_value_bytes(const std::byte* from, std::byte* to, int dim, int a, int b, At at) {
  LaneMap<uint8_t, 16> map;
  for (int i = 0; i < 4; ++i) map.move(at(a % 4, i), at(b % 4, i));
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(map.from)));
  const uint64_t written = map.written * 0x0001000100010001u;
  for (int d = 0; d < dim; d += 16) {
    const uint64_t mask = dim - d >= 16 ? written : written & 0xffffffffu;
    const auto present = static_cast<__mmask16>(dim - d >= 16 ? 0xffff : 0xff);
    const __m512i x = _mm512_maskz_loadu_epi32(present, from + d * 4);
    _mm512_mask_storeu_epi8(to + d * 4, mask, _mm512_shuffle_epi8(x, order));
  }
}

// int4: a slot is a nibble of one of every four bytes; rows of eight slots.
void move_value_nibbles(const std::byte* from, std::byte* to, int dim, int a, int b) {
  LaneMap<uint8_t, 16> map;
  for (int i = 0; i < 4; ++i) map.move(4 * i + a % 4, 4 * i + b % 4);
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(map.from)));
  const uint64_t written = map.written * 0x0001000100010001u;
  const __m128i right = _mm_cvtsi32_si128(a % 8 < 4 ? 0 : 4);
  const __m128i left = _mm_cvtsi32_si128(b % 8 < 4 ? 0 : 4);
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i kept = _mm512_set1_epi8(static_cast<char>(b % 8 < 4 ? 0xf0 : 0x0f));
  for (int d = 0; d < dim; d += 16) {
    const uint64_t mask = dim - d >= 16 ? written : written & 0xffffffffu;
    const auto present = static_cast<__mmask16>(dim - d >= 16 ? 0xffff : 0xff);
    __m512i x = _mm512_shuffle_epi8(_mm512_maskz_loadu_epi32(present, from + d * 4), order);
    x = _mm512_sll_epi16(_mm512_and_si512(_mm512_srl_epi16(x, right), nibble), left);
    const __m512i old = _mm512_and_si512(_mm512_maskz_loadu_epi32(present, to + d * 4), kept);
    _mm512_mask_storeu_epi8(to + d * 4, mask, _mm512_or_si512(x, old));
  }
}

void move_compact_values(DType type, const std::byte* from, std::byte* to, int dim,
                         const LaneMoves& m) {
  for (int i = 0; i < m.n; ++i) {
    const int a = m.from_lane[i], b = m.to_lane[i];
    if (type == DType::int4) {
      move_value_nibbles(from + a / 8 * dim * 4, to + b / 8 * dim * 4, dim, a, b);
      continue;
    }
    const std::byte* source = from + a / 4 * dim * 4;
    std::byte* target = to + b / 4 * dim * 4;
    if (type == DType::int8)
      move_value_bytes(source, target, dim, a, b, [](int slot, int d) { return 4 * d + slot; });
    else
      move_value_bytes(source, target, dim, a, b,
                       [](int slot, int d) { return slot / 2 * 8 + 2 * d + slot % 2; });
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
  unpack_strip(layout, strip, keys);
}
void score_strip(const StripScoreArgs& args) { score_all_heads(args); }
void dot_strips(const StripDotArgs& args) { dot_all<8>(args); }

void hadamard(float* row, int head_dim) {
  if (head_dim % 16 != 0) return scalar::hadamard(row, head_dim);
  hadamard_row(row, head_dim);
}

namespace {

void move_keys(const KvLayout& layout, const LaneMoves& m) {
  const int dim = layout.head_dim;
  switch (layout.k_dtype) {
    case DType::f32:
      return move_words(m, dim);
    case DType::f16:
      return move_halves(m, m.from, m.to, dim);
    case DType::bf16:
      return move_words(m, dim / 2);
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
      return move_fp8_keys(m, dim / 4);
    case DType::int8:
      return move_words(m, dim / 4);
    case DType::int4:
      return move_words(m, dim / 8);
  }
}

void move_values(const KvLayout& layout, const LaneMoves& m) {
  const std::byte* from = m.from + layout.v_at();
  std::byte* to = m.to + layout.v_at();
  if (layout.v_dtype == DType::bf16) return move_pairs(from, to, layout.head_dim, m);
  if (dtype_bits(layout.v_dtype) <= 8)
    return move_compact_values(layout.v_dtype, from, to, layout.head_dim, m);
  const size_t row = static_cast<size_t>(layout.head_dim) * dtype_bytes(layout.v_dtype);
  for (int i = 0; i < m.n; ++i)
    __builtin_memmove(to + m.to_lane[i] * row, from + m.from_lane[i] * row, row);
}

}  // namespace

void move_lanes(const KvLayout& layout, const LaneMoves& m) {
  move_keys(layout, m);
  move_values(layout, m);
  // Scales and zero points of K and V are rows of 16 halves, one after the other.
  const size_t bytes = layout.strip_bytes() - layout.k_scales_at();
  move_halves(m, m.from + layout.k_scales_at(), m.to + layout.k_scales_at(),
              static_cast<int>(bytes / 32));
}

}  // namespace pagefold::kernels::avx512
