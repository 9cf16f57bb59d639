// Attention in double precision on the values that the cache stores, with the bound that float32
// accumulation and the rounding of p allow.
#pragma once

#include <cmath>

#include "kernels/attention_fixture.h"

namespace pagefold::kernels {

struct Reference {
  std::vector<double> logits;  // of the chunk's slots; -inf where not visible
  double m = -kInfinity;
  double l = 0;                   // sum of exp(logit - m)
  std::vector<double> o;          // unnormalised, relative to m
  std::vector<double> magnitude;  // sum of p |v|
  double logit_error = 0;         // bound of the error of any logit
};

inline Reference reference_attention(const PagedCache& cache, int first_slot, int slots,
                                     const float* q, RowRange range, const ChunkCall& call = {}) {
  const int dim = cache.layout.head_dim;
  Reference ref;
  ref.logits.assign(kChunkSlots, -kInfinity);
  ref.o.assign(static_cast<size_t>(dim), 0.0);
  ref.magnitude.assign(static_cast<size_t>(dim), 0.0);
  for (int s = 0; s < slots; ++s) {
    const bool live = call.live == nullptr || (call.live[s / 32] >> (s % 32) & 1u);
    if (s < range.lo || s >= range.hi || !live) continue;
    double dot = 0, magnitude = 0;
    for (int d = 0; d < dim; ++d) {
      float scaled = q[d] * call.scale;
      if (cache.layout.k_dtype == DType::bf16) scaled = through(DType::bf16, scaled);
      const double product =
          double{scaled} *
          through(cache.layout.k_dtype, cache.k[static_cast<size_t>((first_slot + s) * dim + d)]);
      dot += product;
      magnitude += std::abs(product);
    }
    const double bias = call.log_bias != nullptr ? call.log_bias[s] : 0.0;
    const auto at = static_cast<size_t>(s);
    ref.logits[at] = dot + bias;
    // A product and a sum are rounded at most once each per d, and the bias once.
    ref.logit_error = std::max(ref.logit_error,
                               (dim + 2) * 0x1p-24 * 1.01 * (magnitude + std::abs(bias)) + 1e-37);
    ref.m = std::max(ref.m, ref.logits[at]);
  }
  if (ref.m == -kInfinity) return ref;
  for (int s = 0; s < slots; ++s) {
    const double p = std::exp(ref.logits[static_cast<size_t>(s)] - ref.m);
    if (p == 0) continue;
    ref.l += p;
    for (int d = 0; d < dim; ++d) {
      const double v =
          through(cache.layout.v_dtype, cache.v[static_cast<size_t>((first_slot + s) * dim + d)]);
      ref.o[static_cast<size_t>(d)] += p * v;
      ref.magnitude[static_cast<size_t>(d)] += p * std::abs(v);
    }
  }
  return ref;
}

// Relative error that one p may have: the logits of p and of m, the subtraction, the exponential
// (2 ulp), and half an ulp of bfloat16 where p is rounded.
inline double p_error(const KvLayout& layout, const Reference& ref) {
  return std::expm1(2 * ref.logit_error + 128 * 0x1p-24) * 1.0 + 0x1p-22 +
         (layout.v_dtype == DType::bf16 ? 0x1p-9 : 0.0);
}

// o / l of `n` summed slots against the reference.
inline void expect_close(const KvLayout& layout, const Reference& ref, float m, float l,
                         const float* o) {
  if (ref.m == -kInfinity) {
    ASSERT_EQ(m, -kInfinity);
    ASSERT_EQ(l, 0.0f);
    for (int d = 0; d < layout.head_dim; ++d) ASSERT_EQ(o[d], 0.0f);
    return;
  }
  ASSERT_NEAR(m, ref.m, ref.logit_error);
  const double relative = p_error(layout, ref) + 2 * kChunkSlots * 0x1p-24;
  // l is measured from m, the reference from its own m.
  const double l_ref = ref.l * std::exp(ref.m - m);
  ASSERT_NEAR(l, l_ref, l_ref * relative);
  for (int d = 0; d < layout.head_dim; ++d) {
    const auto at = static_cast<size_t>(d);
    ASSERT_NEAR(o[d] / double{l}, ref.o[at] / ref.l, 2.1 * relative * ref.magnitude[at] / ref.l)
        << "d " << d;
  }
}

}  // namespace pagefold::kernels
