// The score pass and the value pass over types that are multiplied as floats, written once for the
// vector instruction sets. Include after vec_avx2.h or vec_avx512.h: everything here is local to
// the including file. A type of keys K has
//   kDims, kQueryBytes      dimensions in 64 bytes of a strip, bytes of a query for them
//   strips(T)               strips at once, so that T queries' sums fit the registers
//   load, query, dot
// and a type of values V<Half> what vec_avx512.h says.
#pragma once

#include "kernels/attention_parts.h"

// Without it g++ 12 keeps accumulators in memory: the arrays are taken apart only where their loops
// are gone early.
#ifdef PAGEFOLD_KEEP_LOOPS  // sanitizer builds, see packed_layout.h
#define PF_UNROLL
#else
#define PF_UNROLL _Pragma("GCC unroll 8")
#endif

namespace pagefold::kernels {
namespace {

template <int N>
struct Count {
  static constexpr int value = N;
};

// Calls body(Count<n>) so that the number of queries is a constant.
template <class Body>
PF_INLINE void with_queries(int n, const Body& body) {
  switch (n) {
    case 1:
      return body(Count<1>());
    case 2:
      return body(Count<2>());
    case 3:
      return body(Count<3>());
    default:
      break;
  }
  if constexpr (Vec::kMaxQueries > 3) {
    switch (n) {
      case 4:
        return body(Count<4>());
      case 5:
        return body(Count<5>());
      default:
        return body(Count<6>());
    }
  }
}

// Scores of T queries for S strips.
template <class K, int T, int S>
void score_strips(const std::byte* const* at, const std::byte* const* ahead, int head_dim,
                  const TileQueries& queries, float* s) {
  Vec::F acc[T][S];
  PF_UNROLL
  for (int t = 0; t < T; ++t) PF_UNROLL
  for (int i = 0; i < S; ++i) acc[t][i] = Vec::zero();
  const int steps = head_dim / K::kDims;
  for (int step = 0; step < steps; ++step) {
    typename K::Keys k[S];
    PF_UNROLL
    for (int i = 0; i < S; ++i) {
      k[i] = K::load(at[i] + step * 64);
      _mm_prefetch(reinterpret_cast<const char*>(ahead[i]) + step * 64, _MM_HINT_T1);
    }
    PF_UNROLL
    for (int t = 0; t < T; ++t) {
      const auto query =
          K::query(queries.q + static_cast<size_t>(t) * queries.stride + step * K::kQueryBytes);
      PF_UNROLL
      for (int i = 0; i < S; ++i) acc[t][i] = K::dot(acc[t][i], k[i], query);
    }
  }
  PF_UNROLL
  for (int t = 0; t < T; ++t) PF_UNROLL
  for (int i = 0; i < S; ++i) Vec::store(s + t * kChunkSlots + i * kStripSlots, acc[t][i]);
}

template <class K>
void score_tile(const KvLayout& layout, const StripList& strips, const TileQueries& queries,
                Tile& tile) {
  with_queries(tile.queries, [&](auto count) {
    constexpr int T = decltype(count)::value;
    constexpr int S = K::strips(T);
    int i = tile.first;
    for (; i + S <= tile.last; i += S)
      score_strips<K, T, S>(strips.at + i, strips.ahead + i, layout.head_dim, queries,
                            tile.s + i * kStripSlots);
    for (; i < tile.last; ++i)
      score_strips<K, T, 1>(strips.at + i, strips.ahead + i, layout.head_dim, queries,
                            tile.s + i * kStripSlots);
  });
}

// o += p v of T queries over N registers of dimensions and the strips [begin, end). v_at: from a
// strip's start to its first value; o: the first query's, dim floats to the next.
template <class V, int T, int N, bool Half, bool Masked>
void add_values(const StripList& strips, size_t v_at, int dim, const float* weights, int begin,
                int end, uint16_t mask, int fetched, float* o) {
  constexpr int kRegBytes = kStripSlots * V::kDimBytes;
  const int lanes = Half ? 8 : 16;
  const size_t step_bytes = static_cast<size_t>(dim) * V::kDimBytes;
  Vec::F acc[T][N];
  PF_UNROLL
  for (int t = 0; t < T; ++t) PF_UNROLL
  for (int n = 0; n < N; ++n) acc[t][n] = Vec::load_n(o + t * dim + n * 16, lanes);
  for (int i = begin; i < end; ++i) {
    const std::byte* v = strips.at[i] + v_at;
    const char* ahead = reinterpret_cast<const char*>(strips.ahead[i] + v_at);
    const std::byte* w =
        reinterpret_cast<const std::byte*>(weights) + i * kStripSlots * V::kWeightBytes;
    for (int slot = 0; slot < kStripSlots; slot += V::kSlots) {
      typename V::Values values[N];
      PF_UNROLL
      for (int n = 0; n < N; ++n) {
        values[n] = Masked ? V::load_live(v + n * kRegBytes, static_cast<unsigned>(mask) >> slot)
                           : V::load(v + n * kRegBytes);
        if (n * kRegBytes % 64 == 0 && slot >= fetched * V::kSlots)
          _mm_prefetch(ahead + n * kRegBytes, _MM_HINT_T1);
      }
      PF_UNROLL
      for (int t = 0; t < T; ++t) {
        const auto weight = V::weight(w + t * kChunkSlots * 4 + slot * V::kWeightBytes);
        PF_UNROLL
        for (int n = 0; n < N; ++n) acc[t][n] = V::dot(acc[t][n], values[n], weight);
      }
      v += step_bytes;
      ahead += step_bytes;
    }
  }
  PF_UNROLL
  for (int t = 0; t < T; ++t) PF_UNROLL
  for (int n = 0; n < N; ++n) Vec::store_n(o + t * dim + n * 16, acc[t][n], lanes);
}

template <class V, int T, int N, bool Half>
void value_slice(const StripList& strips, size_t v_at, int dim, const Tile& tile, float* o) {
  for (int i = tile.first; i < tile.last;) {
    int end = i + 1;
    switch (tile.kind[i]) {
      case Tile::skip:
        break;
      case Tile::full:
        while (end < tile.last && tile.kind[end] == Tile::full) ++end;
        add_values<V, T, N, Half, false>(strips, v_at, dim, tile.s, i, end, 0xffff, tile.fetched,
                                         o);
        break;
      case Tile::uniform:
        add_values<V, T, N, Half, true>(strips, v_at, dim, tile.s, i, end, tile.mask[0][i],
                                        tile.fetched, o);
        break;
      case Tile::ragged:
        for (int t = 0; t < T; ++t)
          if (tile.mask[t][i] != 0)
            add_values<V, 1, N, Half, true>(strips, v_at, dim, tile.s + t * kChunkSlots, i, end,
                                            tile.mask[t][i], tile.fetched, o + t * dim);
    }
    i = end;
  }
}

template <template <bool> class V, int T>
void value_tile_of(const KvLayout& layout, const StripList& strips, const Tile& tile, float* o) {
  const int dim = layout.head_dim;
  for (int i = 0; i < T * dim; i += 8) Vec::store_n(o + i, Vec::zero(), 8);
  constexpr int kMost = V<false>::regs(T);
  for (int d = 0; d < dim;) {
    const size_t v_at = strips.v + static_cast<size_t>(d) * V<false>::kDimBytes;
    const int left = dim - d;
    if constexpr (kMost >= 4) {
      if (left >= 64) {
        value_slice<V<false>, T, 4, false>(strips, v_at, dim, tile, o + d);
        d += 64;
        continue;
      }
    }
    if constexpr (kMost >= 2) {
      if (left >= 32) {
        value_slice<V<false>, T, 2, false>(strips, v_at, dim, tile, o + d);
        d += 32;
        continue;
      }
    }
    if (left >= 16) {
      value_slice<V<false>, T, 1, false>(strips, v_at, dim, tile, o + d);
      d += 16;
    } else {
      value_slice<V<true>, T, 1, true>(strips, v_at, dim, tile, o + d);
      d += 8;
    }
  }
}

template <template <bool> class V>
void value_tile(const KvLayout& layout, const StripList& strips, const Tile& tile, float* o) {
  with_queries(tile.queries, [&](auto count) {
    value_tile_of<V, decltype(count)::value>(layout, strips, tile, o);
  });
}

}  // namespace
}  // namespace pagefold::kernels
