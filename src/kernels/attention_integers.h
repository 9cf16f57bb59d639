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
//   kSteps                  what the largest weight becomes
//   kDiffused               whether what a weight loses is handed on to the next strip's
//   store_weights(row, slot, x), weight(row, slot)    x: still to be rounded; a row:
//                                                     kWeightRowBytes
//   Acc zero(), dot(acc, values, weight), exact(acc)
#pragma once

#include "kernels/attention_passes.h"

namespace pagefold::kernels {
namespace {

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

// Fetches the lines that begin among a strip's scales and zero points, which are at byte `at`. What
// lies before, in a line that began earlier, comes with that one.
PF_INLINE void fetch_scales(const std::byte* strip, size_t at, int groups, bool has_zeros) {
  const size_t end = at + static_cast<size_t>(groups) * kStripSlots * (has_zeros ? 4 : 2);
  for (size_t line = (at + 63) / 64 * 64; line < end; line += 64)
    _mm_prefetch(reinterpret_cast<const char*>(strip + line), _MM_HINT_T1);
}

// One group's dot products of T queries and S strips, times the scales, added to total.
template <class K, int T, int S>
PF_INLINE void score_group(const KvLayout& layout, const StripList& strips, int first,
                           const TileQueries& queries, int group, Vec::F (&total)[T][S]) {
  const std::byte* const* const at = strips.at + first;
  const std::byte* const* const ahead = strips.ahead + first;
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
  const size_t scales_at = strips.k_scales + static_cast<size_t>(group) * kStripSlots * 2;
  const size_t zeros_at = scales_at + static_cast<size_t>(strips.groups) * kStripSlots * 2;
  PF_UNROLL
  for (int i = 0; i < S; ++i) {
    if (group == 0) fetch_scales(ahead[i], scales_at, strips.groups, K::kHasZero);
    const Vec::F scale = Vec::load_f16(at[i] + scales_at);
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      const int32_t sum = QueryTail(queries, t, dim).sums[group];
      Vec::F x = K::exact(acc[t][i], sum);
      if constexpr (K::kHasZero)
        x = Vec::fma(Vec::load_f16(at[i] + zeros_at), Vec::set1(-static_cast<float>(sum)), x);
      total[t][i] = Vec::fma(scale, x, total[t][i]);
    }
  }
}

template <class K, int T, int S>
void score_integer_strips(const KvLayout& layout, const StripList& strips, int first,
                          const TileQueries& queries, Tile& tile) {
  Vec::F total[T][S];
  PF_UNROLL
  for (int t = 0; t < T; ++t) PF_UNROLL
  for (int i = 0; i < S; ++i) total[t][i] = Vec::zero();
  for (int g = 0; g < strips.groups; ++g)
    score_group<K, T, S>(layout, strips, first, queries, g, total);
  float* const s = tile.s + first * kStripSlots;
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
      score_integer_strips<K, T, S>(layout, strips, i, queries, tile);
    for (; i < tile.last; ++i) score_integer_strips<K, T, 1>(layout, strips, i, queries, tile);
  });
}

// The integer weights of a tile's queries for one group of dimensions.
struct alignas(64) IntegerWeights {
  std::byte n[kMostTileQueries][kWeightRowBytes];
  float unit[kMostTileQueries];
  float zeros[kMostTileQueries];  // sum of n zero
};

// A query's weights times the scales for strip i; hidden slots count as 0.
PF_INLINE Vec::F scaled_weights(const Tile& tile, int t, int i, Vec::F scale) {
  const Vec::F p = Vec::load(tile.s + t * kChunkSlots + i * kStripSlots);
  return Vec::select(tile.mask[t][i], Vec::mul(p, scale), Vec::zero());
}

// The unit of each query's weights in one group of dimensions. factor: its inverse.
template <class V, int T>
PF_INLINE void weight_units(const StripList& strips, const Tile& tile, int group, size_t scales_at,
                            float* unit, Vec::F (&factor)[T]) {
  Vec::F most[T];
  PF_UNROLL
  for (int t = 0; t < T; ++t) most[t] = Vec::zero();
  for (int i = tile.first; i < tile.last; ++i) {
    if (group == 0) fetch_scales(strips.ahead[i], strips.v_scales, strips.groups, V::kHasZero);
    const Vec::F scale = Vec::load_f16(strips.at[i] + scales_at);
    PF_UNROLL
    for (int t = 0; t < T; ++t) most[t] = Vec::max_bits(most[t], scaled_weights(tile, t, i, scale));
  }
  PF_UNROLL
  for (int t = 0; t < T; ++t) {
    const float largest = Vec::reduce_max_bits(most[t]);
    const bool usable = largest / V::kSteps >= __FLT_MIN__;
    unit[t] = usable || largest != largest ? largest / V::kSteps : 0.0f;
    factor[t] = Vec::set1(usable ? V::kSteps / largest : 0.0f);
  }
}

// Weights times scales, rounded. All queries at once: a strip's scales are widened once, and the
// queries' maxima do not wait for one another.
template <class V, int T>
void weigh(const StripList& strips, const Tile& tile, int group, IntegerWeights& out) {
  const size_t scales_at = strips.v_scales + static_cast<size_t>(group) * kStripSlots * 2;
  const size_t zeros_at = scales_at + static_cast<size_t>(strips.groups) * kStripSlots * 2;
  Vec::F factor[T], zeros[T], carry[T];
  weight_units<V, T>(strips, tile, group, scales_at, out.unit, factor);
  PF_UNROLL
  for (int t = 0; t < T; ++t) zeros[t] = carry[t] = Vec::zero();
  for (int i = tile.first; i < tile.last; ++i) {
    const Vec::F scale = Vec::load_f16(strips.at[i] + scales_at);
    Vec::F zero = Vec::zero();
    if constexpr (V::kHasZero) zero = Vec::load_f16(strips.at[i] + zeros_at);
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      const Vec::F w = scaled_weights(tile, t, i, scale);
      Vec::F x;
      if constexpr (V::kDiffused) {
        // A hidden slot's weight is 0: it hands on what it got, as that rounds to 0.
        const Vec::F exact = Vec::add(Vec::mul(w, factor[t]), carry[t]);
        x = Vec::round(exact);
        carry[t] = Vec::sub(exact, x);
      } else {
        x = Vec::mul(w, factor[t]);
      }
      V::store_weights(out.n[t], i * kStripSlots, x);
      if constexpr (V::kHasZero) {
        static_assert(V::kDiffused, "zero points are multiplied by rounded weights");
        zeros[t] = Vec::select(tile.mask[t][i], Vec::fma(x, zero, zeros[t]), zeros[t]);
      }
    }
  }
  PF_UNROLL
  for (int t = 0; t < T; ++t) out.zeros[t] = V::kHasZero ? Vec::reduce_add(zeros[t]) : 0.0f;
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
  for (int g = 0; g < strips.groups; ++g) {
    weigh<V, T>(strips, tile, g, weights);
    for (int d = layout.group_begin(g), end = layout.group_end(g); d < end;) {
      const size_t v_at = strips.v + static_cast<size_t>(d) * 4;
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
