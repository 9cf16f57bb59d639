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
  std::vector<double> rounding;   // of o: what 15 or 8 bits of p may lose (integer V)
};

// Half a step of a 15-bit integer query, relative to the largest |q|; of 15-bit weights; a whole
// one of the 8-bit weights of int4 values.
constexpr double kQueryStep = 0.5 / 16256, kWeightStep = 0.5 / 32767, kSmallWeightStep = 1.0 / 254;

// The query as it meets the keys. 8 bits (int4 keys) are rounded here, as a bound for them would
// hide other faults; 15 bits are left to the bound.
inline std::vector<double> reference_query(const KvLayout& layout, const float* q, float scale) {
  std::vector<double> out;
  float largest = 0;
  for (int d = 0; d < layout.head_dim; ++d) {
    const float x = q[d] * scale;
    largest = std::max(largest, std::abs(x));
    out.push_back(double{layout.k_dtype == DType::bf16 ? bf16_to_f32(f32_to_bf16(x)) : x});
  }
  if (layout.k_dtype != DType::int4) return out;
  const float unit = largest / 127, steps = 127 / largest;
  for (int d = 0; d < layout.head_dim; ++d) {
    const bool usable = unit >= std::numeric_limits<float>::min();
    out[static_cast<size_t>(d)] = usable ? double{std::nearbyint(q[d] * scale * steps)} * unit : 0;
  }
  return out;
}

// u / 2 for every slot, u of the largest p * scale; sums are exact, the zero points' are not. int4:
// what slot i loses (at most u / 2) is what the next one, 16 further, gets: by parts the sum loses
// u / 2 times the differences of their codes.
inline void add_weight_rounding(const PagedCache& cache, int first_slot, Reference& ref) {
  const bool diffused = cache.layout.v_dtype == DType::int4;
  const double zeros = diffused ? 0x1p-18 * 16 : 0;
  const double step = diffused ? kSmallWeightStep / 2 : kWeightStep;
  std::vector<std::pair<int, double>> seen;  // slots and their p
  for (int s = 0; s < kChunkSlots; ++s) {
    const double x = ref.logits[static_cast<size_t>(s)];
    if (x != -kInfinity) seen.emplace_back(first_slot + s, std::exp(x - ref.m));
  }
  std::vector<double> scales(seen.size());
  double largest = 0, n = 0;
  for (int d = 0; d < cache.layout.head_dim; ++d) {
    if (d == 0 || (cache.layout.group != 0 && d % cache.layout.group == 0)) {
      largest = n = 0;
      for (size_t i = 0; i < seen.size(); ++i) {
        scales[i] = cache.scale(false, seen[i].first, d);
        largest = std::max(largest, seen[i].second * scales[i]);
        n += seen[i].second * scales[i];
      }
    }
    double codes = 0, before[kStripSlots] = {};
    for (size_t i = 0; i < seen.size(); ++i) {
      const double code = scales[i] > 0 ? cache.stored(false, seen[i].first, d) / scales[i] : 0;
      double& last = before[seen[i].first % kStripSlots];
      codes += std::abs(diffused ? code - last : code);
      last = code;
    }
    for (const double last : before) codes += diffused ? std::abs(last) : 0;
    ref.rounding[static_cast<size_t>(d)] = 1.01 * step * largest * codes + zeros * n;
  }
}

inline Reference reference_attention(const PagedCache& cache, int first_slot, int slots,
                                     const float* q, RowRange range, const ChunkCall& call = {}) {
  const int dim = cache.layout.head_dim;
  Reference ref;
  ref.logits.assign(kChunkSlots, -kInfinity);
  ref.o.assign(static_cast<size_t>(dim), 0.0);
  ref.magnitude.assign(static_cast<size_t>(dim), 0.0);
  ref.rounding.assign(static_cast<size_t>(dim), 0.0);
  const bool whole_k = dtype_has_scales(cache.layout.k_dtype);
  const std::vector<double> query = reference_query(cache.layout, q, call.scale);
  double largest_q = 0;
  for (int d = 0; d < dim; ++d)
    largest_q = std::max(largest_q, std::abs(double{q[d]} * call.scale));
  for (int s = 0; s < slots; ++s) {
    const bool live = call.live == nullptr || (call.live[s / 32] >> (s % 32) & 1u);
    if (s < range.lo || s >= range.hi || !live) continue;
    double dot = 0, magnitude = 0, rounding = 0;
    for (int d = 0; d < dim; ++d) {
      const double k = cache.stored(true, first_slot + s, d);
      const double product = query[static_cast<size_t>(d)] * k;
      dot += product;
      magnitude += std::abs(product);
      if (!whole_k) continue;
      // Sums of integers are exact, but they are taken before the zero points.
      magnitude += std::abs(k) * largest_q;
      if (cache.layout.k_dtype == DType::int4)
        magnitude += 16 * cache.scale(true, first_slot + s, d) * largest_q;
      else
        rounding += 1.01 * kQueryStep * largest_q * std::abs(k);
    }
    const double bias = call.log_bias != nullptr ? call.log_bias[s] : 0.0;
    const auto at = static_cast<size_t>(s);
    ref.logits[at] = dot + bias;
    // A product and a sum are rounded at most once each per d, and the bias once.
    ref.logit_error =
        std::max(ref.logit_error,
                 (dim + 2) * 0x1p-24 * 1.01 * (magnitude + std::abs(bias)) + 1e-37 + rounding);
    ref.m = std::max(ref.m, ref.logits[at]);
  }
  if (ref.m == -kInfinity) return ref;
  for (int s = 0; s < slots; ++s) {
    const double p = std::exp(ref.logits[static_cast<size_t>(s)] - ref.m);
    if (p == 0) continue;
    ref.l += p;
    for (int d = 0; d < dim; ++d) {
      const double v = cache.stored(false, first_slot + s, d);
      ref.o[static_cast<size_t>(d)] += p * v;
      ref.magnitude[static_cast<size_t>(d)] += p * std::abs(v);
    }
  }
  if (dtype_has_scales(cache.layout.v_dtype)) add_weight_rounding(cache, first_slot, ref);
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
    ASSERT_NEAR(o[d] / double{l}, ref.o[at] / ref.l,
                (2.1 * relative * ref.magnitude[at] + 1.1 * ref.rounding[at]) / ref.l + 1e-37)
        << "d " << d;
  }
}

}  // namespace pagefold::kernels
