// Integer weights with a scale and a zero point a group of inputs, and the words that AWQ and GPTQ
// checkpoints keep them in. Value = (q - zero) * scale; scales are float16 numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_file.h"
#include "quantize/source_model.h"

namespace pagefold {

// A tensor as it goes into the file, under a module's name: suffix "qweight" of
// "model.layers.0.self_attn.q_proj".
struct OutTensor {
  std::string suffix;
  TensorType type = TensorType::F32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

struct IntWeights {
  int bits = 4;  // 2, 3, 4, 8
  int64_t rows = 0, cols = 0, group = 0;
  std::vector<uint8_t> q;       // [rows][cols]
  std::vector<uint8_t> zero;    // [rows][groups]
  std::vector<uint16_t> scale;  // [rows][groups], float16
  std::vector<int32_t> g_idx;   // [cols]: the group of an input; empty: input / group
  int64_t groups() const { return cols / group; }
};

// Scale and zero point of one group of one row.
struct GroupScale {
  float scale = 1;  // a float16 number > 0
  int zero = 0;
};
struct IntRule {
  int bits = 4;
  bool symmetric = false;
  int least_zero = 0;  // of asymmetric groups: 1 where a format cannot tell zero 0
};
// The scale whose ends are `shrink` times the range of values, 0 included. Symmetric: zero is half
// of the codes, the range that of the largest magnitude.
GroupScale group_scale(std::span<const float> values, const IntRule& rule, float shrink = 1);
inline int quantize_int(float v, const GroupScale& g, int max_q) {
  const float x = v / g.scale + static_cast<float>(g.zero);
  // Nearest, ties to even, as the reference tools round.
  const float r = x < 0 ? 0.0f : x > static_cast<float>(max_q) ? static_cast<float>(max_q) : x;
  return static_cast<int>(__builtin_rintf(r));
}
inline float int_value(int q, const GroupScale& g) {
  return static_cast<float>(q - g.zero) * g.scale;
}

// Round to nearest, group by group.
IntWeights round_to_nearest(const Matrix& w, int64_t group, const IntRule& rule);
// What a reader makes of them.
Matrix int_values(const IntWeights& w);

// AWQ's GEMM layout: qweight [cols][rows / 8], qzeros [groups][rows / 8], scales [groups][rows].
// rows: a multiple of 8.
std::vector<OutTensor> pack_awq(const IntWeights& w);
// GPTQ: qweight [cols * bits / 32][rows], qzeros [groups][rows * bits / 32], scales, g_idx. v1
// stores each zero less one, v2 as it is. cols and rows: whole words (32 values for 3 bits).
std::vector<OutTensor> pack_gptq(const IntWeights& w, bool v2 = false);

}  // namespace pagefold
