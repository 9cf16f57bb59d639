#include "formats/quant/awq.h"

#include <array>

#include "formats/quant/packed_words.h"
#include "formats/quant/plain_values.h"

namespace pagefold {
namespace {

constexpr std::array<unsigned, 8> kShift = {0, 16, 4, 20, 8, 24, 12, 28};

}  // namespace

void awq_columns(const AwqMatrix& m, int64_t first, int64_t n, int8_t* q) {
  const int64_t words = m.n_out / 8;
  for (int64_t k = 0; k < m.n_in; ++k) {
    const std::byte* row = m.qweight + (k * words + first / 8) * 4;
    for (int64_t c = 0; c < n / 8; ++c) {
      const uint32_t word = packed_word(row, c);
      int8_t* out = q + c * 8 * m.n_in + k;
      for (size_t j = 0; j < 8; ++j)
        out[static_cast<int64_t>(j) * m.n_in] = static_cast<int8_t>((word >> kShift[j]) & 15);
    }
  }
}

void awq_scales(const AwqMatrix& m, int64_t out, float* scale, float* zero) {
  const unsigned shift = kShift[static_cast<size_t>(out % 8)];
  for (int64_t g = 0; g < m.n_in / m.group; ++g) {
    scale[g] = plain_value(m.scale_type, m.scales, g * m.n_out + out);
    const uint32_t word = packed_word(m.qzeros, g * (m.n_out / 8) + out / 8);
    zero[g] = static_cast<float>((word >> shift) & 15);
  }
}

}  // namespace pagefold
