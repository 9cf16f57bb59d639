// The score pass and the value pass over int8 and int4 (numeric definition: paged.h), written once
// for the vector instruction sets. Include after vec_avx2.h or vec_avx512.h and integers_avx2.h or
// integers_avx512.h: everything here is local to the including file. Sums of integers are exact, so
// they may be taken in any order; hidden slots have weight 0, so what lies there does not matter.
//
// A type of keys K has
//   kDims                   dimensions in 64 bytes of a strip
//   strips(T)               strips at once, so that T queries' sums fit the registers
//   Acc zero(), dot(acc, keys, query at these dimensions, head_dim)
//   exact(acc, sum)         the sum of n q (int8) or of n (q + zero) (int4) as a float; sum: of n
// and a type of values V
//   kSlots, regs(T)         slots in 64 bytes, registers of 16 dimensions at once
//   store_weights(row, slot, x), weight(row, slot)    x: still to be rounded; a row:
//                                                     kWeightRowBytes
//   Acc zero(), dot(acc, values, weight), exact(acc)
#pragma once

#include "kernels/attention_passes.h"

namespace pagefold::kernels {
namespace {

constexpr float kWeightSteps = 32767.0f;
constexpr int kWeightRowBytes = 2 * kChunkSlots;

// The unit and the sums behind a prepared query's integers (2 bytes a dimension).
struct QueryTail {
  const float* unit;
  const int32_t* sums;
  PF_INLINE QueryTail(const TileQueries& queries, int t, int head_dim) {
    const std::byte* at = queries.q + static_cast<size_t>(t) * queries.stride + 2 * head_dim;
    unit = reinterpret_cast<const float*>(at);
    sums = reinterpret_cast<const int32_t*>(at + 4);
  }
};

// One group's dot products of T queries and S strips, times the scales, added to total.
template <class K, int T, int S>
PF_INLINE void score_group(const KvLayout& layout, const std::byte* const* at,
                           const std::byte* const* ahead, const TileQueries& queries, int group,
                           Vec::F (&total)[T][S]) {
  const int dim = layout.head_dim, begin = layout.group_begin(group), end = layout.group_end(group);
  typename K::Acc acc[T][S];
  PF_UNROLL
  for (int t = 0; t < T; ++t) PF_UNROLL
  for (int i = 0; i < S; ++i) acc[t][i] = K::zero();
  for (int d = begin; d < end; d += K::kDims) {
    const int offset = d / K::kDims * 64;
    typename K::Keys k[S];
    PF_UNROLL
    for (int i = 0; i < S; ++i) {
      k[i] = K::load(at[i] + offset);
      _mm_prefetch(reinterpret_cast<const char*>(ahead[i]) + offset, _MM_HINT_T1);
    }
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      const auto query = K::query(queries.q + static_cast<size_t>(t) * queries.stride, d, dim);
      PF_UNROLL
      for (int i = 0; i < S; ++i) acc[t][i] = K::dot(acc[t][i], k[i], query);
    }
  }
  const size_t scales_at = layout.k_scales_at() + static_cast<size_t>(group) * kStripSlots * 2;
  PF_UNROLL
  for (int i = 0; i < S; ++i) {
    const std::byte* scales = at[i] + scales_at;
    _mm_prefetch(reinterpret_cast<const char*>(ahead[i] + scales_at), _MM_HINT_T1);
    const Vec::F scale = Vec::load_f16(scales);
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      const int32_t sum = QueryTail(queries, t, dim).sums[group];
      Vec::F x = K::exact(acc[t][i], sum);
      if constexpr (K::kHasZero)
        x = Vec::fma(Vec::load_f16(scales + layout.zeros_after_scales()),
                     Vec::set1(-static_cast<float>(sum)), x);
      total[t][i] = Vec::fma(scale, x, total[t][i]);
    }
  }
}

template <class K, int T, int S>
void score_integer_strips(const KvLayout& layout, const std::byte* const* at,
                          const std::byte* const* ahead, const TileQueries& queries, float* s) {
  Vec::F total[T][S];
  PF_UNROLL
  for (int t = 0; t < T; ++t) PF_UNROLL
  for (int i = 0; i < S; ++i) total[t][i] = Vec::zero();
  for (int g = 0; g < layout.groups(); ++g)
    score_group<K, T, S>(layout, at, ahead, queries, g, total);
  PF_UNROLL
  for (int t = 0; t < T; ++t) {
    const Vec::F unit = Vec::set1(*QueryTail(queries, t, layout.head_dim).unit);
    PF_UNROLL
    for (int i = 0; i < S; ++i)
      Vec::store(s + t * kChunkSlots + i * kStripSlots, Vec::mul(total[t][i], unit));
  }
}

template <class K>
void score_integer_tile(const KvLayout& layout, const StripList& strips, const TileQueries& queries,
                        Tile& tile) {
  with_queries(tile.queries, [&](auto count) {
    constexpr int T = decltype(count)::value;
    constexpr int S = K::strips(T);
    int i = tile.first;
    for (; i + S <= tile.last; i += S)
      score_integer_strips<K, T, S>(layout, strips.at + i, strips.ahead + i, queries,
                                    tile.s + i * kStripSlots);
    for (; i < tile.last; ++i)
      score_integer_strips<K, T, 1>(layout, strips.at + i, strips.ahead + i, queries,
                                    tile.s + i * kStripSlots);
  });
}

// The integer weights of a tile's queries for one group of dimensions.
struct alignas(64) IntegerWeights {
  std::byte n[kMostTileQueries][kWeightRowBytes];
  float unit[kMostTileQueries];
  float zeros[kMostTileQueries];  // sum of n zero
};

template <class V>
void weigh(const KvLayout& layout, const StripList& strips, const Tile& tile, int t, int group,
           IntegerWeights& out) {
  const size_t scales_at = layout.v_scales_at() + static_cast<size_t>(group) * kStripSlots * 2;
  const float* p = tile.s + t * kChunkSlots;
  alignas(64) float w[kChunkSlots];
  Vec::F most = Vec::zero(), sum = Vec::zero();
  for (int i = tile.first; i < tile.last; ++i) {
    const Vec::F x = Vec::select(
        tile.mask[t][i],
        Vec::mul(Vec::load(p + i * kStripSlots), Vec::load_f16(strips.at[i] + scales_at)),
        Vec::zero());
    Vec::store(w + i * kStripSlots, x);
    most = Vec::max(x, most);
    sum = Vec::add(sum, x);  // for NaN, which the maximum loses
  }
  const float largest = Vec::reduce_max(most);
  float unit = largest / kWeightSteps, steps = kWeightSteps / largest;
  if (!(unit >= __FLT_MIN__)) unit = steps = 0.0f;
  if (Vec::any_nan(sum)) unit = __builtin_nanf("");
  const Vec::F factor = Vec::set1(steps);
  Vec::F zeros = Vec::zero();
  for (int i = tile.first; i < tile.last; ++i) {
    const Vec::F x = Vec::mul(Vec::load(w + i * kStripSlots), factor);
    V::store_weights(out.n[t], i * kStripSlots, x);
    if constexpr (V::kHasZero) {
      const Vec::F zero = Vec::load_f16(strips.at[i] + scales_at + layout.zeros_after_scales());
      zeros = Vec::fma(Vec::round(x), Vec::select(tile.mask[t][i], zero, Vec::zero()), zeros);
    }
  }
  out.unit[t] = unit;
  out.zeros[t] = V::kHasZero ? Vec::reduce_add(zeros) : 0.0f;
}

// o of N registers of dimensions; with Half, of the first 8 dimensions. A strip's scales follow its
// values, so that reading 16 dimensions stays inside it.
template <class V, int T, int N, bool Half>
void integer_slice(const StripList& strips, size_t v_at, int dim, const Tile& tile,
                   const IntegerWeights& weights, float* o) {
  typename V::Acc acc[T][N];
  PF_UNROLL
  for (int t = 0; t < T; ++t) PF_UNROLL
  for (int n = 0; n < N; ++n) acc[t][n] = V::zero();
  for (int i = tile.first; i < tile.last; ++i) {
    const std::byte* v = strips.at[i] + v_at;
    const char* ahead = reinterpret_cast<const char*>(strips.ahead[i] + v_at);
    for (int slot = 0; slot < kStripSlots; slot += V::kSlots) {
      typename V::Values values[N];
      PF_UNROLL
      for (int n = 0; n < N; ++n) {
        values[n] = V::load(v + n * 64);
        if (slot >= tile.fetched * V::kSlots) _mm_prefetch(ahead + n * 64, _MM_HINT_T1);
      }
      PF_UNROLL
      for (int t = 0; t < T; ++t) {
        const auto weight = V::weight(weights.n[t], i * kStripSlots + slot);
        PF_UNROLL
        for (int n = 0; n < N; ++n) acc[t][n] = V::dot(acc[t][n], values[n], weight);
      }
      v += dim * 4;
      ahead += dim * 4;
    }
  }
  PF_UNROLL
  for (int t = 0; t < T; ++t) {
    const Vec::F unit = Vec::set1(weights.unit[t]), zeros = Vec::set1(weights.zeros[t]);
    PF_UNROLL
    for (int n = 0; n < N; ++n) {
      Vec::F x = V::exact(acc[t][n]);
      if constexpr (V::kHasZero) x = Vec::sub(x, zeros);
      Vec::store_n(o + t * dim + n * 16, Vec::mul(unit, x), Half ? 8 : 16);
    }
  }
}

template <class V, int T>
void integer_values(const KvLayout& layout, const StripList& strips, const Tile& tile, float* o) {
  const int dim = layout.head_dim;
  constexpr int kMost = V::regs(T);
  IntegerWeights weights;
  for (int g = 0; g < layout.groups(); ++g) {
    for (int t = 0; t < T; ++t) weigh<V>(layout, strips, tile, t, g, weights);
    for (int d = layout.group_begin(g), end = layout.group_end(g); d < end;) {
      const size_t v_at = layout.v_at() + static_cast<size_t>(d) * 4;
      const int left = end - d;
      if constexpr (kMost >= 4) {
        if (left >= 64) {
          integer_slice<V, T, 4, false>(strips, v_at, dim, tile, weights, o + d);
          d += 64;
          continue;
        }
      }
      if constexpr (kMost >= 2) {
        if (left >= 32) {
          integer_slice<V, T, 2, false>(strips, v_at, dim, tile, weights, o + d);
          d += 32;
          continue;
        }
      }
      if (left >= 16)
        integer_slice<V, T, 1, false>(strips, v_at, dim, tile, weights, o + d);
      else
        integer_slice<V, T, 1, true>(strips, v_at, dim, tile, weights, o + d);
      d += 16;
    }
  }
}

template <class V>
void integer_value_tile(const KvLayout& layout, const StripList& strips, const Tile& tile,
                        float* o) {
  with_queries(tile.queries, [&](auto count) {
    integer_values<V, decltype(count)::value>(layout, strips, tile, o);
  });
}

}  // namespace
}  // namespace pagefold::kernels
