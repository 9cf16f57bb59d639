// Scoring keys, written once for the vector instruction sets. Include after vec_avx2.h or
// vec_avx512.h and a struct Wide with:
//   static Vec::F sqrt(Vec::F)
//   static Vec::F from_f16(const std::byte*)                       16 values
//   static void from_pairs(const std::byte*, Vec::F&, Vec::F&)     16 pairs of bfloat16
//   static Vec::F bits_of(const std::byte*, int shift, int mask)   of 16 words
//   static Vec::F butterfly<int kStep>(Vec::F)   lane i: x[i ^ kStep] + x[i], - x[i] where i &
//   kStep
// and KeysFp8 of fp8_avx2.h or fp8_avx512.h.
#pragma once

#include "kernels/keys.h"

namespace pagefold::kernels {
namespace {

template <class K>
PF_INLINE void unpack_fp8(int dim, const std::byte* strip, float* keys) {
  for (int d = 0; d < dim; d += 4, strip += 64) {
    const auto k = K::load(strip);
    for (int i = 0; i < 4; ++i) Vec::store(keys + (d + i) * kStripSlots, k.v[i]);
  }
}

template <bool kInt4>
PF_INLINE void unpack_integers(const KvLayout& layout, const std::byte* strip, float* keys) {
  const std::byte* scales = strip + layout.k_scales_at();
  for (int g = 0; g < layout.groups(); ++g, scales += 2 * kStripSlots) {
    const Vec::F scale = Vec::load_f16(scales);
    const Vec::F zero =
        kInt4 ? Vec::load_f16(scales + layout.zeros_after_scales()) : Vec::set1(128.0f);
    for (int d = layout.group_begin(g), end = layout.group_end(g); d < end; ++d) {
      const Vec::F code = kInt4 ? Wide::bits_of(strip + d / 8 * 64, d % 4 * 8 + d % 8 / 4 * 4, 15)
                                : Wide::bits_of(strip + d / 4 * 64, d % 4 * 8, 255);
      Vec::store(keys + d * kStripSlots, Vec::mul(scale, Vec::sub(code, zero)));
    }
  }
}

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
    case DType::fp8_e4m3:
      return unpack_fp8<KeysFp8<&kE4m3Table>>(dim, strip, keys);
    case DType::fp8_e5m2:
      return unpack_fp8<KeysFp8<&kE5m2Table>>(dim, strip, keys);
    case DType::int8:
      return unpack_integers<false>(layout, strip, keys);
    case DType::int4:
      return unpack_integers<true>(layout, strip, keys);
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

// head_dim is a multiple of 16, so that a block is 16 or more.
PF_INLINE void hadamard_row(float* row, int dim) {
  int block = 1;
  while (dim % (block * 2) == 0) block *= 2;
  const Vec::F factor = Vec::set1(1.0f / __builtin_sqrtf(static_cast<float>(block)));
  for (int d = 0; d < dim; d += 16) {
    Vec::F x = Vec::load(row + d);
    x = Wide::butterfly<1>(x);
    x = Wide::butterfly<2>(x);
    x = Wide::butterfly<4>(x);
    x = Wide::butterfly<8>(x);
    Vec::store(row + d, block == 16 ? Vec::mul(x, factor) : x);
  }
  for (int half = 16; half < block; half *= 2) {
    const bool last = half * 2 == block;
    for (int d = 0; d < dim; d += 16) {
      if ((d & half) != 0) continue;
      const Vec::F a = Vec::load(row + d), b = Vec::load(row + d + half);
      const Vec::F sum = Vec::add(a, b), difference = Vec::sub(a, b);
      Vec::store(row + d, last ? Vec::mul(sum, factor) : sum);
      Vec::store(row + d + half, last ? Vec::mul(difference, factor) : difference);
    }
  }
}

}  // namespace
}  // namespace pagefold::kernels
