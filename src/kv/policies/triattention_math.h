// The arithmetic of TriAttention (arXiv 2604.04921) as pure functions.
//
// With c_f = E[q_f], a_f = E|q_f| of un-rotated queries, w_f the rotary frequencies, t0 the
// position of the next token, D the offsets and k_f a cached (rotated) key as complex numbers:
//   score = agg over d in D of sum_f s Re(c_f conj(k_f) e^{i w_f (t0 + d)})
//           + sum_f s (a_f - |c_f|) |k_f|
// where a cached key carries the other factor s of the rotary attention scaling itself.
// For the mean the phases fold into one complex weight a band; for the maximum there is one set a
// offset. Phases are built in double: at t0 ~ 2e5 a float phase is off by 0.01 rad.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/policy.h"

namespace pagefold {

struct TriattentionFold {
  bool max = false;  // over offsets; else the mean
  std::vector<int64_t> offsets;
  int64_t next_pos = 0;
  double attention_scaling = 1;
  bool trig = true;  // ablation: without, the score has its second term alone
  bool mlr = true;   // ablation: without, a_f replaces a_f - |c_f|
};

// 1, 2, 4 ... up to `most`.
std::vector<int64_t> triattention_offsets(int64_t most);

// [n_layers][n_heads][bands] coefficients of all heads.
void triattention_fold(const QueryStatsView& stats, const KvModel& model,
                       const TriattentionFold& fold, KeyCoefficientBuffer& out);

// z = (logit - mean) * inverse, over the slots of weight 1 (population sigma, at least 1e-6).
struct ZScale {
  float mean = 0, inverse = 0;
};
ZScale z_scale(const float* logits, const float* weights, int64_t n);
// 1 for the slots that count: neither pinned nor dead. flags null: all.
void z_weights(const uint8_t* flags, int64_t n, float* weights);

}  // namespace pagefold
