// The forms of the bitsandbytes library: 4-bit codes of a fixed table with the largest magnitude of
// every 64 values (nf4: quantiles of the normal distribution, Dettmers et al., arXiv 2305.14314;
// fp4), and 8-bit integers with the largest magnitude of every row.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype_bits.h"
#include "quantize/int_weights.h"

namespace pagefold {

enum class Bnb4Type : uint8_t { nf4, fp4 };
const std::array<float, 16>& bnb4_table(Bnb4Type type);
// The 256 values, ascending, that magnitudes are coded with when they are quantised again: 7
// decades with 2^i steps in decade i, both signs, 0 and 1.
const std::array<float, 256>& bnb_dynamic_table();

struct Bnb4Weights {
  Bnb4Type type = Bnb4Type::nf4;
  int64_t rows = 0, cols = 0;
  int block = 64, nested_block = 256;
  std::vector<uint8_t> packed;  // two codes a byte, the even value in the high half
  std::vector<float> absmax;    // of each block, before it is quantised again
  bool nested = false;          // then the three below stand for absmax
  std::vector<uint8_t> codes;   // [blocks] into the dynamic table
  std::vector<float> nested_absmax;
  float offset = 0;  // mean of absmax
};
Bnb4Weights quantize_bnb4(const Matrix& w, Bnb4Type type, bool nested);
// What a reader computes in float32.
Matrix bnb4_values(const Bnb4Weights& w);
// weight and its companions (weight.absmax ... weight.quant_state.bitsandbytes__nf4); dtype: what
// the state says values are.
std::vector<OutTensor> pack_bnb4(const Bnb4Weights& w, DType dtype);
// The state's JSON text.
std::string bnb4_state(const Bnb4Weights& w, DType dtype);

struct Bnb8Weights {
  int64_t rows = 0, cols = 0;
  std::vector<int8_t> q;   // [rows][cols]
  std::vector<float> scb;  // [rows]: value = q * scb / 127
};
Bnb8Weights quantize_bnb8(const Matrix& w);
Matrix bnb8_values(const Bnb8Weights& w);
std::vector<OutTensor> pack_bnb8(const Bnb8Weights& w);

}  // namespace pagefold
