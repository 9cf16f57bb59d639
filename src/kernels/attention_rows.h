// What surrounds the chunk kernel, written once for the vector instruction sets: preparing
// queries, merging chunks. Include after vec_avx2.h or vec_avx512.h.
#pragma once

#include "kernels/attention_parts.h"

namespace pagefold::kernels {
namespace {

// Integer keys: the query's integers in the instruction set's own form (in 2 bytes a dimension),
// their unit, the sums of the groups.
PF_INLINE void prepare_integers(const KvLayout& layout, const float* q, Vec::F scale,
                                std::byte* out) {
  const float most_steps = layout.query_steps();
  const int dim = layout.head_dim;
  const Vec::F flip = Vec::set1(-1.0f);
  Vec::F most = Vec::zero(), sum = Vec::zero();
  for (int d = 0; d < dim; d += 16) {
    const Vec::F x = Vec::mul(Vec::load_n(q + d, dim - d < 16 ? 8 : 16), scale);
    const Vec::F size = Vec::max(x, Vec::mul(x, flip));
    most = Vec::max(size, most);
    sum = Vec::add(sum, size);  // for NaN, which the maximum loses
  }
  const float largest = Vec::reduce_max(most);
  float unit = largest / most_steps, steps = most_steps / largest;
  if (!(unit >= __FLT_MIN__)) unit = steps = 0.0f;
  if (Vec::any_nan(sum) || !(unit <= __FLT_MAX__)) unit = __builtin_nanf(""), steps = 0.0f;
  __builtin_memcpy(out + 2 * dim, &unit, 4);
  const Vec::F factor = Vec::set1(steps);
  std::byte* sums = out + 2 * dim + 4;
  for (int g = 0; g < layout.groups(); ++g, sums += 4) {
    Vec::F total = Vec::zero();
    for (int d = layout.group_begin(g), end = layout.group_end(g); d < end; d += 16) {
      const int n = end - d < 16 ? 8 : 16;
      const Vec::F whole = Vec::round(Vec::mul(Vec::mul(Vec::load_n(q + d, n), scale), factor));
      if (layout.k_dtype == DType::int4)
        store_query_bytes(out + d, whole, n);
      else
        store_query_integers(out, d, dim, whole, n);
      total = Vec::add(total, whole);
    }
    const auto exact = static_cast<int32_t>(steps == 0.0f ? 0.0f : Vec::reduce_add(total));
    __builtin_memcpy(sums, &exact, 4);
  }
}

PF_INLINE void prepare_queries(const KvLayout& layout, const float* q, int64_t ldq, int n_queries,
                               float scale, void* out) {
  const bool bf16 = layout.k_dtype == DType::bf16, narrow = bf16 && narrow_bf16();
  const auto stride = static_cast<int64_t>(query_bytes(layout));
  auto* to = static_cast<std::byte*>(out);
  const Vec::F factor = Vec::set1(scale);
  for (int i = 0; i < n_queries; ++i, to += stride) {
    if (dtype_has_scales(layout.k_dtype)) {
      prepare_integers(layout, q + i * ldq, factor, to);
      continue;
    }
    for (int d = 0; d < layout.head_dim; d += 16) {
      const int n = layout.head_dim - d < 16 ? 8 : 16;
      Vec::F v = Vec::mul(Vec::load_n(q + i * ldq + d, n), factor);
      if (narrow) {
        Vec::store_query_bf16(to + 2 * d, v, n);
        continue;
      }
      if (bf16) v = Vec::round_bf16(v);
      Vec::store_n(reinterpret_cast<float*>(to + 4 * d), v, n);
    }
  }
}

PF_INLINE void merge_query(int dim, float from_m, float from_l, const float* from, float* m,
                           float* l, float* o) {
  if (from_m == -__builtin_inff()) return;
  const float top = !(from_m <= *m) ? from_m : *m;  // NaN wins
  const float keep = Vec::lane0(Vec::exp(Vec::set1(*m - top)));
  const float add = Vec::lane0(Vec::exp(Vec::set1(from_m - top)));
  *m = top;
  // keep = 0 also where nothing was merged yet: l and o need not hold numbers then.
  *l = (keep == 0.0f ? 0.0f : *l * keep) + from_l * add;
  const Vec::F keeps = Vec::set1(keep), adds = Vec::set1(add);
  for (int d = 0; d < dim; d += 16) {
    const int n = dim - d < 16 ? 8 : 16;
    const Vec::F kept = keep == 0.0f ? Vec::zero() : Vec::mul(Vec::load_n(o + d, n), keeps);
    Vec::store_n(o + d, Vec::fma(Vec::load_n(from + d, n), adds, kept), n);
  }
}

PF_INLINE void finish_query(int dim, float m, float l, const float* o, float* out) {
  const Vec::F sum = Vec::set1(l);
  for (int d = 0; d < dim; d += 16) {
    const int n = dim - d < 16 ? 8 : 16;
    Vec::store_n(out + d,
                 m == -__builtin_inff() ? Vec::zero() : Vec::div(Vec::load_n(o + d, n), sum), n);
  }
}

// Sums of N strips stay in registers while the queries' weights stream by.
template <bool Squared, int N>
PF_INLINE void add_mass_strips(const float* weights, const float* factor, int queries,
                               float* mass) {
  Vec::F sum[N];
  for (int n = 0; n < N; ++n) sum[n] = Vec::load(mass + n * kStripSlots);
  for (int i = 0; i < queries; ++i, weights += kChunkSlots) {
    if (factor[i] == 0.0f) continue;
    const Vec::F f = Vec::set1(factor[i]);
    for (int n = 0; n < N; ++n) {
      const Vec::F w = Vec::load(weights + n * kStripSlots);
      if constexpr (Squared) {
        const Vec::F p = Vec::mul(w, f);
        sum[n] = Vec::fma(p, p, sum[n]);
      } else {
        sum[n] = Vec::fma(w, f, sum[n]);
      }
    }
  }
  for (int n = 0; n < N; ++n) Vec::store(mass + n * kStripSlots, sum[n]);
}

template <bool Squared>
PF_INLINE void add_mass(const float* weights, const float* factor, int queries, int slots,
                        float* mass) {
  constexpr int kAtOnce = 4;
  int s = 0;
  for (; s + kAtOnce * kStripSlots <= slots; s += kAtOnce * kStripSlots)
    add_mass_strips<Squared, kAtOnce>(weights + s, factor, queries, mass + s);
  for (; s + kStripSlots <= slots; s += kStripSlots)
    add_mass_strips<Squared, 1>(weights + s, factor, queries, mass + s);
  if (s == slots) return;
  alignas(64) float tail[kStripSlots] = {};
  for (int i = 0; i < slots - s; ++i) tail[i] = mass[s + i];
  add_mass_strips<Squared, 1>(weights + s, factor, queries, tail);
  for (int i = 0; i < slots - s; ++i) mass[s + i] = tail[i];
}

PF_INLINE float page_score(const float* lo, const float* q, int dim) {
  const float* hi = lo + dim;
  Vec::F sum = Vec::zero();
  for (int d = 0; d < dim; d += 16) {
    const int n = dim - d < 16 ? 8 : 16;
    const Vec::F x = Vec::load_n(q + d, n);
    sum = Vec::add(
        sum, Vec::max(Vec::mul(x, Vec::load_n(lo + d, n)), Vec::mul(x, Vec::load_n(hi + d, n))));
  }
  return Vec::reduce_add(sum);
}

PF_INLINE void score_pages(const float* bounds, const uint32_t* blocks, int n, const float* q,
                           int group, int dim, float* scores) {
  constexpr int kAhead = 8;  // blocks lie anywhere: nothing else fetches the next ones
  for (int i = 0; i < n; ++i) {
    const float* lo = bounds + int64_t{blocks[i]} * 2 * dim;
    if (i + kAhead < n) {
      const float* next = bounds + int64_t{blocks[i + kAhead]} * 2 * dim;
      for (int d = 0; d < 2 * dim; d += 16)
        _mm_prefetch(reinterpret_cast<const char*>(next + d), _MM_HINT_T0);
    }
    float best = -__builtin_inff();
    for (int g = 0; g < group; ++g) {
      const float score = page_score(lo, q + g * dim, dim);
      if (score > best) best = score;
    }
    scores[i] = best;
  }
}

}  // namespace
}  // namespace pagefold::kernels
