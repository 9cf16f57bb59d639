// Plain loops: the oracle of the vector files. move_lanes also serves AVX2, which has no masked
// permutation that would beat it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/keys.h"
#include "kernels/keys_units.h"
#include "kernels/strip_scalar.h"

namespace pagefold::kernels::scalar {
namespace {

// Elements of `bytes`, `step` apart, from one slot to another.
void move_elements(const std::byte* from, std::byte* to, size_t bytes, size_t step, int n) {
  for (int i = 0; i < n; ++i, from += step, to += step) std::memcpy(to, from, bytes);
}

void move_nibble(const std::byte* from, bool from_high, std::byte* to, bool to_high) {
  const auto x = static_cast<unsigned>(*from) >> (from_high ? 4 : 0) & 15u;
  const auto old = static_cast<unsigned>(*to);
  *to = static_cast<std::byte>(to_high ? (old & 0x0fu) | x << 4 : (old & 0xf0u) | x);
}

void move_slot(const StripPart& from, int a, const StripPart& to, int b) {
  const KvLayout& layout = from.layout;
  const DType type = from.type();
  const auto writable = [&](int d) { return const_cast<std::byte*>(to.at(d, b)); };
  if (type == DType::int4 && !from.keys) {
    for (int d = 0; d < layout.head_dim; ++d)
      move_nibble(from.at(d, a), a % 8 >= 4, writable(d), b % 8 >= 4);
  } else if (type == DType::int4) {
    // Both nibbles of a key's byte are of the same slot.
    for (int d = 0; d < layout.head_dim; d += 8) move_elements(from.at(d, a), writable(d), 4, 4, 1);
  } else {
    const size_t bytes = dtype_bytes(type);
    for (int d = 0; d < layout.head_dim; ++d)
      move_elements(from.at(d, a), writable(d), bytes, bytes, 1);
  }
  if (!dtype_has_scales(type)) return;
  // Zero points lie behind the scales in the same steps.
  const int rows = layout.groups() * (type == DType::int4 ? 2 : 1);
  move_elements(from.scales + a * 2, const_cast<std::byte*>(to.scales) + b * 2, 2,
                size_t{kStripSlots} * 2, rows);
}

}  // namespace

void unpack_keys(const KvLayout& layout, const std::byte* strip, float* keys) {
  const StripPart part = StripPart::k_of(layout, strip);
  for (int d = 0; d < layout.head_dim; ++d)
    for (int lane = 0; lane < kStripSlots; ++lane)
      keys[d * kStripSlots + lane] = part.value(d, lane);
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

StripUnits unit_strip(const StripUnitArgs& a) {
  StripUnits out{0, 0};
  for (int lane = 0; lane < kStripSlots; ++lane) {
    const bool counted = (a.counts >> lane & 1u) != 0;
    const float factor = counted ? inverse_length(a.keys + lane, a.head_dim) : 0;
    if (factor != 0) out.directed |= 1u << lane;
    for (int d = 0; d < a.head_dim; ++d) {
      const float x = factor != 0 ? a.keys[d * kStripSlots + lane] * factor : 0;
      a.rows[lane * a.head_dim + d] = x;
      a.sums[d] += x;
      out.largest = std::max(out.largest, std::abs(x));
    }
  }
  return out;
}

void encode_strip(const StripEncodeArgs& a) {
  for (int lane = 0; lane < kStripSlots; ++lane) {
    a.sums[lane] = 0;
    for (int d = 0; d < a.head_dim; ++d) {
      const auto code =
          static_cast<int8_t>(std::nearbyint(a.rows[lane * a.head_dim + d] * a.inverse_scale));
      a.codes[d / 4 * 64 + lane * 4 + d % 4] = code;
      a.sums[lane] += code;
    }
  }
}

void dot_rows(const RowDotArgs& a) {
  for (int64_t i = 0; i < a.n; ++i) {
    float sum = 0;
    for (int d = 0; d < a.head_dim; ++d) sum += a.rows[i * a.head_dim + d] * a.with[d];
    a.out[i] = sum;
  }
}

void near_strips(const StripNearArgs& a) {
  const auto code = [&](int slot, int d) {
    return int32_t{a.codes[(slot / 16 * (a.head_dim / 4) + d / 4) * 64 + slot % 16 * 4 + d % 4]};
  };
  for (int r = 0; r < a.n_rows; ++r) {
    for (int s = 0; s < a.n_strips; ++s) {
      unsigned bits = 0;
      for (int lane = 0; lane < kStripSlots; ++lane) {
        const int slot = (a.first_strip + s) * kStripSlots + lane;
        int32_t dot = 0;
        for (int d = 0; d < a.head_dim; ++d) dot += code(a.rows[r], d) * code(slot, d);
        bits |= (dot > a.limit ? 1u : 0u) << lane;
      }
      a.out[r * a.n_strips + s] = static_cast<uint16_t>(bits);
    }
  }
}

void move_lanes(const KvLayout& layout, const LaneMoves& m) {
  for (int i = 0; i < m.n; ++i) {
    move_slot(StripPart::k_of(layout, m.from), m.from_lane[i], StripPart::k_of(layout, m.to),
              m.to_lane[i]);
    move_slot(StripPart::v_of(layout, m.from), m.from_lane[i], StripPart::v_of(layout, m.to),
              m.to_lane[i]);
  }
}

void hadamard(float* row, int head_dim) {
  int block = 1;
  while (head_dim % (block * 2) == 0) block *= 2;
  const float factor = 1.0f / std::sqrt(static_cast<float>(block));
  for (float* x = row; x < row + head_dim; x += block) {
    for (int half = 1; half < block; half *= 2) {
      for (int i = 0; i < block; i += 2 * half) {
        for (int j = i; j < i + half; ++j) {
          const float a = x[j], b = x[j + half];
          x[j] = a + b;
          x[j + half] = a - b;
        }
      }
    }
    for (int i = 0; i < block; ++i) x[i] *= factor;
  }
}

}  // namespace pagefold::kernels::scalar
