// How far the next-token distributions of a quantised model are from those of its source:
// Kullback-Leibler divergence in nats, over all tokens of a held-out text. The vocabulary is gone
// through in slices, so that no matrix of all logits is ever needed.
#pragma once

#include <cstdint>
#include <vector>

#include "quantize/linear_algebra.h"
#include "quantize/source_model.h"

namespace pagefold {

struct KldReport {
  int64_t tokens = 0;
  double mean = 0, p99 = 0;
  double top1 = 0;  // share of tokens with the same most likely next token
};

// reference, ours: residual streams behind the last layer, [rows][hidden]. The final norm and the
// output head are read from the source; ours are rounded to dtype.
KldReport measure_kld(const SourceModel& source, DType dtype, std::vector<float> reference,
                      std::vector<float> ours, const LinearAlgebra& math);

}  // namespace pagefold
