// Plain loops: the oracle of the vector files. move_lanes also serves AVX2, which has no masked
// permutation that would beat it.
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/keys.h"

namespace pagefold::kernels::scalar {
namespace {

float load(DType type, const std::byte* p) {
  if (type == DType::f32) {
    float v;
    std::memcpy(&v, p, 4);
    return v;
  }
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return type == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// One lane of every row of the strip's keys: a row is 16 elements of kBytes.
template <size_t kBytes>
void move_key_lanes(const LaneMoves& m, size_t rows) {
  for (size_t r = 0; r < rows; ++r) {
    const std::byte* from = m.from + r * kStripSlots * kBytes;
    std::byte* to = m.to + r * kStripSlots * kBytes;
    for (int i = 0; i < m.n; ++i)
      std::memcpy(to + m.to_lane[i] * kBytes, from + m.from_lane[i] * kBytes, kBytes);
  }
}

// [8][head_dim][2]: a slot is every second element of its row.
void move_value_pairs(const std::byte* from, std::byte* to, size_t dim, const LaneMoves& m) {
  for (int i = 0; i < m.n; ++i) {
    const size_t a = m.from_lane[i], b = m.to_lane[i];
    const std::byte* source = from + a / 2 * dim * 4 + a % 2 * 2;
    std::byte* target = to + b / 2 * dim * 4 + b % 2 * 2;
    for (size_t d = 0; d < dim; ++d) std::memcpy(target + d * 4, source + d * 4, 2);
  }
}

}  // namespace

void unpack_keys(const KvLayout& layout, const std::byte* strip, float* keys) {
  const size_t bytes = dtype_bytes(layout.k_dtype);
  for (int d = 0; d < layout.head_dim; ++d) {
    for (int lane = 0; lane < kStripSlots; ++lane) {
      const int at = layout.k_dtype == DType::bf16 ? (d / 2 * kStripSlots + lane) * 2 + d % 2
                                                   : d * kStripSlots + lane;
      keys[d * kStripSlots + lane] = load(layout.k_dtype, strip + static_cast<size_t>(at) * bytes);
    }
  }
}

void score_strip(const StripScoreArgs& a) {
  for (int g = 0; g < a.group; ++g) {
    for (int lane = 0; lane < kStripSlots; ++lane) {
      const auto re_of = [&](int f) { return a.keys[(a.half_layout ? f : 2 * f) * 16 + lane]; };
      const auto im_of = [&](int f) {
        return a.keys[(a.half_layout ? f + a.bands : 2 * f + 1) * 16 + lane];
      };
      float best = 0, norms = 0;
      for (int s = 0; s < a.sets; ++s) {
        const float* re = a.re + s * a.set_stride + g * a.bands;
        const float* im = a.im + s * a.set_stride + g * a.bands;
        float sum = 0;
        for (int f = 0; f < a.bands; ++f) sum += re[f] * re_of(f) + im[f] * im_of(f);
        best = s == 0 || sum > best ? sum : best;
      }
      for (int f = 0; f < a.bands; ++f) {
        norms += a.norm[g * a.bands + f] * std::sqrt(re_of(f) * re_of(f) + im_of(f) * im_of(f));
      }
      a.out[g * a.ldo + lane] = best + norms;
    }
  }
}

void dot_strips(const StripDotArgs& a) {
  for (int q = 0; q < a.n_queries; ++q) {
    for (int s = 0; s < a.n_strips; ++s) {
      const float* keys = a.strips + int64_t{s} * a.head_dim * kStripSlots;
      for (int lane = 0; lane < kStripSlots; ++lane) {
        float sum = 0;
        for (int d = 0; d < a.head_dim; ++d)
          sum += a.queries[q * a.ldq + d] * keys[d * kStripSlots + lane];
        a.out[q * a.ldo + s * kStripSlots + lane] = sum * a.scale;
      }
    }
  }
}

void move_lanes(const KvLayout& layout, const LaneMoves& m) {
  const auto dim = static_cast<size_t>(layout.head_dim);
  if (layout.k_dtype == DType::f32)
    move_key_lanes<4>(m, dim);
  else if (layout.k_dtype == DType::bf16)
    move_key_lanes<4>(m, dim / 2);
  else
    move_key_lanes<2>(m, dim);

  const std::byte* from = m.from + layout.k_strip_bytes();
  std::byte* to = m.to + layout.k_strip_bytes();
  if (layout.v_dtype == DType::bf16) return move_value_pairs(from, to, dim, m);
  const size_t row = dim * dtype_bytes(layout.v_dtype);
  for (int i = 0; i < m.n; ++i)
    std::memmove(to + m.to_lane[i] * row, from + m.from_lane[i] * row, row);
}

}  // namespace pagefold::kernels::scalar
