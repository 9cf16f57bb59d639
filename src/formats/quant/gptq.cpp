#include "formats/quant/gptq.h"

#include "formats/quant/packed_words.h"
#include "formats/quant/plain_values.h"

namespace pagefold {

void gptq_columns(const GptqMatrix& m, int64_t first, int64_t n, int8_t* q) {
  const auto bits = static_cast<unsigned>(m.bits);
  const uint32_t mask = (1u << bits) - 1;
  const int offset = m.bits == 8 ? 128 : 0;
  for (int64_t k = 0; k < m.n_in; ++k) {
    const int64_t at = k * m.bits;
    const auto shift = static_cast<unsigned>(at % 32);
    const bool straddles = shift + bits > 32;
    const std::byte* row = m.qweight + (at / 32 * m.n_out + first) * 4;
    for (int64_t c = 0; c < n; ++c) {
      uint32_t value = packed_word(row, c) >> shift;
      if (straddles) value |= packed_word(row, m.n_out + c) << (32 - shift);
      q[c * m.n_in + k] = static_cast<int8_t>(static_cast<int>(value & mask) - offset);
    }
  }
}

void gptq_scales(const GptqMatrix& m, int64_t out, float* scale, float* zero) {
  const int64_t row_bytes = m.n_out * m.bits / 32 * 4;
  const int mask = (1 << m.bits) - 1, offset = m.bits == 8 ? 128 : 0;
  for (int64_t g = 0; g < m.groups; ++g) {
    scale[g] = plain_value(m.scale_type, m.scales, g * m.n_out + out);
    int z = packed_value(m.qzeros + g * row_bytes, out, m.bits);
    if (m.zeros_minus_one) z = (z + 1) & mask;
    zero[g] = static_cast<float>(z - offset);
  }
}

Result<std::vector<int32_t>> group_order(const std::byte* g_idx, int64_t n_in, int64_t group) {
  const int64_t groups = n_in / group;
  std::vector<int32_t> next(static_cast<size_t>(groups), 0);
  bool ordered = true;
  for (int64_t k = 0; k < n_in; ++k) {
    const auto g = static_cast<int32_t>(packed_word(g_idx, k));
    if (g < 0 || g >= groups)
      return bad_data("input {} is in group {}, but there are only {}", k, g, groups);
    ordered = ordered && g == k / group;
    ++next[static_cast<size_t>(g)];
  }
  if (ordered) return std::vector<int32_t>();
  for (int64_t g = 0; g < groups; ++g) {
    int32_t& n = next[static_cast<size_t>(g)];
    if (n != group) return bad_data("group {} has {} inputs instead of {}", g, n, group);
    n = static_cast<int32_t>(g * group);
  }
  std::vector<int32_t> order(static_cast<size_t>(n_in));
  for (int64_t k = 0; k < n_in; ++k) {
    int32_t& at = next[packed_word(g_idx, k)];
    order[static_cast<size_t>(at++)] = static_cast<int32_t>(k);
  }
  return order;
}

}  // namespace pagefold
