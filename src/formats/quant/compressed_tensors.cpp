#include "formats/quant/compressed_tensors.h"

#include "formats/quant/packed_words.h"

namespace pagefold {

void ct_unpack_row(const std::byte* weight_packed, int64_t out, int64_t n_in, int bits, int8_t* q) {
  const int64_t each = 32 / bits;
  const std::byte* row = weight_packed + out * ((n_in + each - 1) / each) * 4;
  const int offset = bits == 8 ? 128 : 0;
  for (int64_t k = 0; k < n_in; ++k)
    q[k] = static_cast<int8_t>(packed_value(row, k, bits) - offset);
}

void ct_zero_points(const std::byte* packed, int64_t out, int64_t groups, int bits, float* zero) {
  const int64_t each = 32 / bits;
  const auto shift = static_cast<unsigned>(out % each * bits);
  const uint32_t mask = (1u << bits) - 1;
  const int offset = bits == 8 ? 128 : 0;
  for (int64_t g = 0; g < groups; ++g) {
    const uint32_t word = packed_word(packed, out / each * groups + g);
    zero[g] = static_cast<float>(static_cast<int>((word >> shift) & mask) - offset);
  }
}

}  // namespace pagefold
