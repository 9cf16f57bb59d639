// Weights and step buffers of a model whose tensors are not at hand: sizes from its dims.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "calc/layers.h"

namespace pagefold::calc {

// A format of weights: bits of a weight with its scales, and whether the embedding and the output
// head are stored in it, too (GGUF) or stay in 16 bits.
struct WeightFormat {
  std::string_view name;
  double bits;
  bool everything;
};
// float32, bfloat16, float16, fp8, int8, awq, gptq, nf4, q8_0 ... Unknown words list the known
// ones.
Result<WeightFormat> parse_weight_format(std::string_view word);

// Weights of the usual decoder (gated feed-forward, RMS norms, biases where the family has them):
// of all its matrices and vectors. nullopt where the layout is not that of a known family or a dim
// is missing, and no published number is there.
std::optional<int64_t> parameters(const Model& model);
// Of the embedding table and the output head, where dims are known.
int64_t table_parameters(const Model& model);

Result<uint64_t> weight_bytes(const Model& model, int64_t parameters, const WeightFormat& format);

// What this engine allocates for a step of `rows` rows with `logit_rows` logits, in float32: the
// residual stream, q, k and v, the heads' outputs, the feed-forward's inner values, the inputs of
// matrix products in their forms, and the logits. nullopt: dims are missing.
std::optional<uint64_t> step_bytes(const Model& model, int64_t rows, int64_t logit_rows);

}  // namespace pagefold::calc
