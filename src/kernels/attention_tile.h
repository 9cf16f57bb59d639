// The chunk kernel over a tile of queries, written once for the vector instruction sets. Include
// after vec_avx2.h or vec_avx512.h: everything here is local to the including file.
//
// A tile is up to Vec::kMaxQueries queries. Its three passes:
//   scores  16 keys a register, several strips at a time; each load of K serves all queries
//   softmax a query at a time: mask, maximum, exponential, sum; weights overwrite the scores
//   values  16 dimensions a register, accumulators stay in registers over the strips of the chunk
// Which other queries share a tile changes no sum: a query adds up dimensions (scores) and slots
// (values) one after the other in its own lanes. A strip of which a query sees nothing is skipped
// for that query; a slot that it does not see, inside a strip of which it sees some, is read as
// v = 0 with p = 0. So what lies in unwritten or stale slots, NaN included, never matters.
#pragma once

#include "kernels/paged.h"

// Without it g++ 12 keeps accumulators in memory: the arrays are taken apart only where their loops
// are gone early.
#define PF_UNROLL _Pragma("GCC unroll 8")

namespace pagefold::kernels {
namespace {

constexpr int kStrips = kChunkSlots / kStripSlots;
// How far ahead of the strip being read the next ones are fetched: strips of 1 to 4 KB are too
// short for the hardware to notice. Into L2, since a chunk is larger than L1.
constexpr int kPrefetchStrips = 12;
constexpr float kNegInf = -__builtin_inff();

struct StripList {
  const std::byte* at[kStrips];
  const std::byte* ahead[kStrips];  // to prefetch while at[i] is read
  int count;
};

PF_INLINE const std::byte* strip_address(const KvLayout& layout, const std::byte* base,
                                         const uint32_t* blocks, int strip) {
  const int per_block = layout.block_size / kStripSlots;
  return base + blocks[strip / per_block] * layout.block_bytes() +
         static_cast<size_t>(strip % per_block) * layout.strip_bytes();
}

void list_strips(const KvLayout& layout, const AttentionChunkArgs& args, StripList& strips) {
  strips.count = (args.slots + kStripSlots - 1) / kStripSlots;
  for (int i = 0; i < strips.count; ++i)
    strips.at[i] = strip_address(layout, args.base, args.blocks, i);
  const int next =
      args.next_blocks != nullptr ? args.next_count * (layout.block_size / kStripSlots) : 0;
  for (int i = 0; i < strips.count; ++i) {
    const int to = i + kPrefetchStrips;
    if (to < strips.count)
      strips.ahead[i] = strips.at[to];
    else if (to - strips.count < next)
      strips.ahead[i] = strip_address(layout, args.base, args.next_blocks, to - strips.count);
    else
      strips.ahead[i] = strips.at[i];
  }
}

// One tile's state. Rows are kChunkSlots floats, so that a query's is a constant distance away.
struct alignas(64) Tile {
  float s[Vec::kMaxQueries * kChunkSlots];                            // scores, then weights
  uint16_t mask[Vec::kMaxQueries][kStrips];                           // visible slots
  enum Kind : uint8_t { skip, full, uniform, ragged } kind[kStrips];  // for the value pass
  int first, last;                                                    // strips that any query sees
};

PF_INLINE uint64_t bits_below(int n) {
  return n <= 0 ? 0 : n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
}

void row_mask(const AttentionChunkArgs& args, int row, uint16_t* mask) {
  const int hi = args.hi[row] < args.slots ? args.hi[row] : args.slots;
  for (int i = 0; i < 4; ++i) {
    uint64_t word = bits_below(hi - 64 * i) & ~bits_below(args.lo[row] - 64 * i);
    if (args.live != nullptr)
      word &= uint64_t{args.live[2 * i]} | uint64_t{args.live[2 * i + 1]} << 32;
    __builtin_memcpy(mask + 4 * i, &word, 8);
  }
}

void tile_masks(const AttentionChunkArgs& args, int begin, int queries, Tile& tile) {
  int known = -1;
  for (int t = 0; t < queries; ++t) {
    const int row = (begin + t) / args.group;
    if (t > 0 && row == known)
      __builtin_memcpy(tile.mask[t], tile.mask[t - 1], sizeof tile.mask[t]);
    else
      row_mask(args, known = row, tile.mask[t]);
  }
  tile.first = kStrips;
  tile.last = 0;
  for (int i = 0; i < kStrips; ++i) {
    unsigned any = 0;
    for (int t = 0; t < queries; ++t) any |= tile.mask[t][i];
    if (any == 0) continue;
    if (i < tile.first) tile.first = i;
    tile.last = i + 1;
  }
}

// After the softmax: a query whose logits are all -inf has lost its masks.
void tile_kinds(int queries, Tile& tile) {
  for (int i = tile.first; i < tile.last; ++i) {
    bool same = true;
    for (int t = 1; t < queries; ++t) same &= tile.mask[t][i] == tile.mask[0][i];
    const unsigned mask = tile.mask[0][i];
    tile.kind[i] = !same            ? Tile::ragged
                   : mask == 0      ? Tile::skip
                   : mask == 0xffff ? Tile::full
                                    : Tile::uniform;
  }
}

// Scores of T queries for S strips. q: the first query, q_stride bytes to the next.
template <class K, int T, int S>
void score_strips(const std::byte* const* at, const std::byte* const* ahead, int head_dim,
                  const std::byte* q, size_t q_stride, float* s) {
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
      const auto query = K::query(q + static_cast<size_t>(t) * q_stride + step * K::kQueryBytes);
      PF_UNROLL
      for (int i = 0; i < S; ++i) acc[t][i] = K::dot(acc[t][i], k[i], query);
    }
  }
  PF_UNROLL
  for (int t = 0; t < T; ++t) PF_UNROLL
  for (int i = 0; i < S; ++i) Vec::store(s + t * kChunkSlots + i * kStripSlots, acc[t][i]);
}

template <class K, int T>
void score_tile(const StripList& strips, int head_dim, const std::byte* q, size_t q_stride,
                Tile& tile) {
  int i = tile.first;
  for (; i + Vec::kMaxStrips <= tile.last; i += Vec::kMaxStrips)
    score_strips<K, T, Vec::kMaxStrips>(strips.at + i, strips.ahead + i, head_dim, q, q_stride,
                                        tile.s + i * kStripSlots);
  for (; i < tile.last; ++i)
    score_strips<K, T, 1>(strips.at + i, strips.ahead + i, head_dim, q, q_stride,
                          tile.s + i * kStripSlots);
}

// Masked and biased logits of a query in place. Returns their maximum; NaN if all are.
float mask_scores(const float* log_bias, const Tile& tile, const uint16_t* mask, float* s) {
  const Vec::F hidden = Vec::set1(kNegInf);
  Vec::F max = hidden;
  bool nan = false;
  for (int i = tile.first; i < tile.last; ++i) {
    Vec::F x = Vec::load(s + i * kStripSlots);
    if (log_bias != nullptr) x = Vec::add(x, Vec::load(log_bias + i * kStripSlots));
    x = Vec::select(mask[i], x, hidden);
    Vec::store(s + i * kStripSlots, x);
    max = Vec::max(max, x);
  }
  const float m = Vec::reduce_max(max);
  if (m == kNegInf)
    for (int i = tile.first; i < tile.last; ++i)
      nan |= Vec::any_nan(Vec::load(s + i * kStripSlots));
  return nan ? __builtin_nanf("") : m;
}

void export_scores(const Tile& tile, const float* s, float* out) {
  for (int i = 0; i < kStrips; ++i) {
    const bool seen = i >= tile.first && i < tile.last;
    Vec::store(out + i * kStripSlots, seen ? Vec::load(s + i * kStripSlots) : Vec::set1(kNegInf));
  }
}

void clear_unseen(const Tile& tile, float* weights) {
  for (int i = 0; i < tile.first; ++i) Vec::store(weights + i * kStripSlots, Vec::zero());
  for (int i = tile.last; i < kStrips; ++i) Vec::store(weights + i * kStripSlots, Vec::zero());
}

// Turns the scores of query t of the tile into weights; m and l are the query's results.
void softmax_query(const KvLayout& layout, const AttentionChunkArgs& args, int query, int t,
                   Tile& tile) {
  float* s = tile.s + t * kChunkSlots;
  uint16_t* mask = tile.mask[t];
  const float m = mask_scores(args.log_bias, tile, mask, s);
  if (args.scores != nullptr)
    export_scores(tile, s, args.scores + static_cast<int64_t>(query) * kChunkSlots);
  args.out.m[query] = m;
  args.out.l[query] = 0.0f;
  if (m == kNegInf) {
    __builtin_memset(mask, 0, sizeof tile.mask[t]);
    return;
  }
  float* const weights =
      args.weights != nullptr ? args.weights + static_cast<int64_t>(query) * kChunkSlots : nullptr;
  if (weights != nullptr) clear_unseen(tile, weights);
  const Vec::F max = Vec::set1(m);
  Vec::F sum = Vec::zero();
  for (int i = tile.first; i < tile.last; ++i) {
    Vec::F p = Vec::exp(Vec::sub(Vec::load(s + i * kStripSlots), max));
    if (weights != nullptr) Vec::store(weights + i * kStripSlots, p);
    // In place: the weights of a strip never lie behind its scores.
    if (layout.v_dtype == DType::bf16)
      p = Vec::store_weights_bf16(s, i, p);
    else
      Vec::store(s + i * kStripSlots, p);
    sum = Vec::add(sum, p);
  }
  args.out.l[query] = Vec::reduce_add(sum);
}

// o += p v of T queries over N registers of dimensions and the strips [begin, end). v_at: from a
// strip's start to its first value; o: the first query's, dim floats to the next.
template <class V, int T, int N, bool Half, bool Masked>
void add_values(const StripList& strips, size_t v_at, int dim, const float* weights, int begin,
                int end, uint16_t mask, float* o) {
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
        if (n * kRegBytes % 64 == 0) _mm_prefetch(ahead + n * kRegBytes, _MM_HINT_T1);
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
        add_values<V, T, N, Half, false>(strips, v_at, dim, tile.s, i, end, 0xffff, o);
        break;
      case Tile::uniform:
        add_values<V, T, N, Half, true>(strips, v_at, dim, tile.s, i, end, tile.mask[0][i], o);
        break;
      case Tile::ragged:
        for (int t = 0; t < T; ++t)
          if (tile.mask[t][i] != 0)
            add_values<V, 1, N, Half, true>(strips, v_at, dim, tile.s + t * kChunkSlots, i, end,
                                            tile.mask[t][i], o + t * dim);
    }
    i = end;
  }
}

template <template <bool> class V, int T>
void value_tile(const StripList& strips, const KvLayout& layout, const Tile& tile, float* o) {
  const int dim = layout.head_dim;
  for (int i = 0; i < T * dim; i += 8) Vec::store_n(o + i, Vec::zero(), 8);
  for (int d = 0; d < dim;) {
    const size_t v_at = layout.k_strip_bytes() + static_cast<size_t>(d) * V<false>::kDimBytes;
    const int left = dim - d;
    if constexpr (V<false>::kMaxRegs >= 4) {
      if (left >= 64) {
        value_slice<V<false>, T, 4, false>(strips, v_at, dim, tile, o + d);
        d += 64;
        continue;
      }
    }
    if constexpr (V<false>::kMaxRegs >= 2) {
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

template <int T>
void run_tile(const KvLayout& layout, const AttentionChunkArgs& args, const StripList& strips,
              int begin, Tile& tile) {
  const size_t q_stride =
      static_cast<size_t>(layout.head_dim) *
      static_cast<size_t>(layout.k_dtype == DType::bf16 ? Vec::kQueryBf16Bytes : 4);
  const auto* q = static_cast<const std::byte*>(args.q) + static_cast<size_t>(begin) * q_stride;
  tile_masks(args, begin, T, tile);
  switch (layout.k_dtype) {
    case DType::f32:
      score_tile<KeysF32, T>(strips, layout.head_dim, q, q_stride, tile);
      break;
    case DType::f16:
      score_tile<KeysF16, T>(strips, layout.head_dim, q, q_stride, tile);
      break;
    case DType::bf16:
      score_tile<KeysBf16, T>(strips, layout.head_dim, q, q_stride, tile);
      break;
    default:
      break;
  }
  for (int t = 0; t < T; ++t) softmax_query(layout, args, begin + t, t, tile);
  tile_kinds(T, tile);
  float* o = args.out.o + static_cast<int64_t>(begin) * layout.head_dim;
  switch (layout.v_dtype) {
    case DType::f32:
      value_tile<ValuesF32, T>(strips, layout, tile, o);
      break;
    case DType::f16:
      value_tile<ValuesF16, T>(strips, layout, tile, o);
      break;
    case DType::bf16:
      value_tile<ValuesBf16, T>(strips, layout, tile, o);
      break;
    default:
      break;
  }
}

// The size of the next tile: as even as can be, so that no tile of one query trails.
PF_INLINE int next_tile(int left) {
  const int tiles = (left + Vec::kMaxQueries - 1) / Vec::kMaxQueries;
  return (left + tiles - 1) / tiles;
}

void run_chunk(const KvLayout& layout, const AttentionChunkArgs& args) {
  StripList strips;
  list_strips(layout, args, strips);
  Tile tile;
  const int queries = args.rows * args.group;
  for (int begin = 0; begin < queries;) {
    const int n = next_tile(queries - begin);
    switch (n) {
      case 1:
        run_tile<1>(layout, args, strips, begin, tile);
        break;
      case 2:
        run_tile<2>(layout, args, strips, begin, tile);
        break;
      case 3:
        run_tile<3>(layout, args, strips, begin, tile);
        break;
      case 4:
        if constexpr (Vec::kMaxQueries >= 4) run_tile<4>(layout, args, strips, begin, tile);
        break;
      case 5:
        if constexpr (Vec::kMaxQueries >= 5) run_tile<5>(layout, args, strips, begin, tile);
        break;
      case 6:
        if constexpr (Vec::kMaxQueries >= 6) run_tile<6>(layout, args, strips, begin, tile);
        break;
    }
    // The rest of the queries find the chunk in the cache.
    if (begin == 0)
      for (int i = 0; i < strips.count; ++i) strips.ahead[i] = strips.at[i];
    begin += n;
  }
}

}  // namespace
}  // namespace pagefold::kernels
