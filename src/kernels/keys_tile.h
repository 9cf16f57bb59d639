// Scoring keys, written once for the vector instruction sets. Include after vec_avx2.h or
// vec_avx512.h and a struct Wide with:
//   static Vec::F sqrt(Vec::F)
//   static Vec::F from_f16(const std::byte*)                       16 values
//   static void from_pairs(const std::byte*, Vec::F&, Vec::F&)     16 pairs of bfloat16
#pragma once

#include "kernels/keys.h"

namespace pagefold::kernels {
namespace {

PF_INLINE void unpack_strip(const KvLayout& layout, const std::byte* strip, float* keys) {
  const int dim = layout.head_dim;
  switch (layout.k_dtype) {
    case DType::bf16:
      for (int d = 0; d < dim; d += 2, strip += 64) {
        Vec::F even, odd;
        Wide::from_pairs(strip, even, odd);
        Vec::store(keys + d * kStripSlots, even);
        Vec::store(keys + (d + 1) * kStripSlots, odd);
      }
      return;
    case DType::f16:
      for (int d = 0; d < dim; ++d, strip += 32)
        Vec::store(keys + d * kStripSlots, Wide::from_f16(strip));
      return;
    case DType::f32:
      __builtin_memcpy(keys, strip, static_cast<size_t>(dim) * kStripSlots * sizeof(float));
      return;
    default:
      return;
  }
}

// kHeads query heads at once; norms: |k_f|, [bands][16].
template <int kHeads>
PF_INLINE void score_heads(const StripScoreArgs& a, const float* norms, int head) {
  const int64_t step = a.half_layout ? kStripSlots : 2 * kStripSlots;
  const float* k_re = a.keys;
  const float* k_im = a.keys + (a.half_layout ? int64_t{a.bands} * kStripSlots : kStripSlots);
  Vec::F best[kHeads], sum[kHeads];
  for (int h = 0; h < kHeads; ++h) best[h] = Vec::set1(-__builtin_inff());
  for (int s = 0; s < a.sets; ++s) {
    const float* re = a.re + s * a.set_stride + int64_t{head} * a.bands;
    const float* im = a.im + s * a.set_stride + int64_t{head} * a.bands;
    for (int h = 0; h < kHeads; ++h) sum[h] = Vec::zero();
    for (int f = 0; f < a.bands; ++f) {
      const Vec::F x = Vec::load(k_re + f * step), y = Vec::load(k_im + f * step);
      for (int h = 0; h < kHeads; ++h) {
        sum[h] = Vec::fma(x, Vec::set1(re[h * a.bands + f]), sum[h]);
        sum[h] = Vec::fma(y, Vec::set1(im[h * a.bands + f]), sum[h]);
      }
    }
    for (int h = 0; h < kHeads; ++h) best[h] = Vec::max(sum[h], best[h]);
  }
  const float* e = a.norm + int64_t{head} * a.bands;
  for (int h = 0; h < kHeads; ++h) sum[h] = Vec::zero();
  for (int f = 0; f < a.bands; ++f) {
    const Vec::F z = Vec::load(norms + f * kStripSlots);
    for (int h = 0; h < kHeads; ++h) sum[h] = Vec::fma(z, Vec::set1(e[h * a.bands + f]), sum[h]);
  }
  for (int h = 0; h < kHeads; ++h)
    Vec::store(a.out + (head + h) * a.ldo, Vec::add(best[h], sum[h]));
}

PF_INLINE void score_all_heads(const StripScoreArgs& a) {
  alignas(64) float norms[kMostBands * kStripSlots];
  const int64_t step = a.half_layout ? kStripSlots : 2 * kStripSlots;
  const float* k_im = a.keys + (a.half_layout ? int64_t{a.bands} * kStripSlots : kStripSlots);
  for (int f = 0; f < a.bands; ++f) {
    const Vec::F x = Vec::load(a.keys + f * step), y = Vec::load(k_im + f * step);
    Vec::store(norms + f * kStripSlots, Wide::sqrt(Vec::fma(x, x, Vec::mul(y, y))));
  }
  int head = 0;
  for (; head + 4 <= a.group; head += 4) score_heads<4>(a, norms, head);
  switch (a.group - head) {
    case 3:
      return score_heads<3>(a, norms, head);
    case 2:
      return score_heads<2>(a, norms, head);
    case 1:
      return score_heads<1>(a, norms, head);
    default:
      return;
  }
}

template <int kQueries>
PF_INLINE void dot_queries(const StripDotArgs& a, const float* keys, int query, int64_t column) {
  const float* q = a.queries + query * a.ldq;
  Vec::F sum[kQueries];
  for (int i = 0; i < kQueries; ++i) sum[i] = Vec::zero();
  for (int d = 0; d < a.head_dim; ++d) {
    const Vec::F k = Vec::load(keys + d * kStripSlots);
    for (int i = 0; i < kQueries; ++i) sum[i] = Vec::fma(k, Vec::set1(q[i * a.ldq + d]), sum[i]);
  }
  const Vec::F scale = Vec::set1(a.scale);
  for (int i = 0; i < kQueries; ++i)
    Vec::store(a.out + (query + i) * a.ldo + column, Vec::mul(sum[i], scale));
}

// kTile queries share a load of the keys.
template <int kTile>
PF_INLINE void dot_all(const StripDotArgs& a) {
  for (int s = 0; s < a.n_strips; ++s) {
    const float* keys = a.strips + int64_t{s} * a.head_dim * kStripSlots;
    const int64_t column = int64_t{s} * kStripSlots;
    int q = 0;
    for (; q + kTile <= a.n_queries; q += kTile) dot_queries<kTile>(a, keys, q, column);
    for (; q < a.n_queries; ++q) dot_queries<1>(a, keys, q, column);
  }
}

}  // namespace
}  // namespace pagefold::kernels
