// The parts of R-KV (Cai et al. 2025, arXiv 2505.24133) as pure functions.
#pragma once

#include <cstdint>

#include "kv/signals.h"

namespace pagefold {

// Reference of the backend's similarity: out[n] = mean over the n rows of the cosine matrix of
// k[n][head_dim] with a zero diagonal, after each row lost its newest column above `threshold`.
// A row without one loses column 0, as the method's code has it; guarded: it loses nothing.
void rkv_similarity(const float* k, int64_t n, int head_dim, float threshold, bool guarded,
                    float* out);

// hidden[n]: 0, or -infinity where a slot has no share (its x must be a number then); null: all
// have one. At least one slot must. out[n] = softmax of similarity[n].
void rkv_redundancy(const float* similarity, const float* hidden, int64_t n, float* out);

// importance[n] = mean over `rows` of the softmax of logits[row][0, n), before pooling.
void rkv_importance(const float* logits, int64_t stride, int rows, const float* hidden, int64_t n,
                    float* importance);

}  // namespace pagefold
