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

#include "kernels/attention_parts.h"

namespace pagefold::kernels {
namespace {

constexpr float kNegInf = -__builtin_inff();

// The addresses of `count` strips of a table.
PF_INLINE void strip_addresses(const KvLayout& layout, const std::byte* base,
                               const uint32_t* blocks, int count, const std::byte** at) {
  const size_t strip = layout.strip_bytes();
  const int per_block = layout.block_size / kStripSlots;
  const size_t block = strip * static_cast<size_t>(per_block);
  for (int i = 0; i < count; ++blocks) {
    const std::byte* address = base + *blocks * block;
    const int end = i + per_block < count ? i + per_block : count;
    for (; i < end; ++i, address += strip) at[i] = address;
  }
}

void list_strips(const KvLayout& layout, const AttentionChunkArgs& args, StripList& strips) {
  const int count = strips.count = (args.slots + kStripSlots - 1) / kStripSlots;
  strips.groups = layout.groups();
  strips.k_scales = layout.k_scales_at();
  strips.v = layout.v_at();
  strips.v_scales = layout.v_scales_at();
  strip_addresses(layout, args.base, args.blocks, count, strips.at);
  const std::byte* next[kStrips];
  int found = 0;
  if (args.next_blocks != nullptr) {
    found = args.next_count * (layout.block_size / kStripSlots);
    if (found > kStrips) found = kStrips;
    strip_addresses(layout, args.base, args.next_blocks, found, next);
  }
  // Pages first, both of a strip that lies on two, so that their addresses are looked up side by
  // side long before the rest is fetched.
  const size_t last = layout.strip_bytes() - 1;
  for (int i = 0; i < found; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(next[i]), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(next[i] + last), _MM_HINT_T1);
  }
  // Where nothing follows, what is read last is fetched again, which costs next to nothing.
  for (int i = 0; i < kPrefetchStrips; ++i)
    strips.at[count + i] = i < found ? next[i] : strips.at[count - 1];
  strips.ahead =
      strips.at + (layout.strip_bytes() < kLongStripBytes ? kPrefetchStrips : kPrefetchLongStrips);
}

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

// Masked and biased logits of a query in place. Returns their maximum; NaN if all are.
float mask_scores(const float* log_bias, const Tile& tile, const uint16_t* mask, float* s) {
  const Vec::F hidden = Vec::set1(kNegInf);
  Vec::F max = hidden;
  bool nan = false;
  for (int i = tile.first; i < tile.last; ++i) {
    Vec::F x = Vec::load(s + i * kStripSlots);
    if (log_bias != nullptr || mask[i] != 0xffff) {
      if (log_bias != nullptr) x = Vec::add(x, Vec::load(log_bias + i * kStripSlots));
      x = Vec::select(mask[i], x, hidden);
      Vec::store(s + i * kStripSlots, x);
    }
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

// What a query's softmax fetches of each strip ahead: one step of the value pass.
struct Ahead {
  const std::byte* const* strips;
  size_t offset, bytes;
};

PF_INLINE int value_steps(DType type) {
  switch (type) {
    case DType::f32:
    case DType::f16:
      return kStripSlots;
    case DType::bf16:
      return kStripSlots / 2;
    case DType::int4:
      return kStripSlots / 8;
    default:
      return kStripSlots / 4;
  }
}

PF_INLINE Ahead fetch_ahead(const KvLayout& layout, const StripList& strips, const Tile& tile,
                            int t) {
  const size_t bytes = layout.data_bytes(layout.v_dtype) / value_steps(layout.v_dtype);
  return {strips.ahead, strips.v + static_cast<size_t>(t) * bytes, t < tile.fetched ? bytes : 0};
}

// Scores less their maximum become weights, in place: the weights of a strip never lie behind its
// scores. Returns their sum. out: the weights before they are rounded.
enum class WeightForm { floats, bf16, bf16_as_floats };
template <WeightForm kForm, bool kExport>
float exponentials(const Tile& tile, const Ahead& ahead, float m, float* s, float* out) {
  const Vec::F max = Vec::set1(m);
  Vec::F sum = Vec::zero();
  for (int i = tile.first; i < tile.last; ++i) {
    for (size_t b = 0; b < ahead.bytes; b += 64)
      _mm_prefetch(reinterpret_cast<const char*>(ahead.strips[i] + ahead.offset + b), _MM_HINT_T1);
    Vec::F p = Vec::exp(Vec::sub(Vec::load(s + i * kStripSlots), max));
    if (kExport) Vec::store(out + i * kStripSlots, p);
    if (kForm == WeightForm::bf16) {
      p = Vec::store_weights_bf16(s, i, p);
    } else {
      if (kForm == WeightForm::bf16_as_floats) p = Vec::round_weights(p);
      Vec::store(s + i * kStripSlots, p);
    }
    sum = Vec::add(sum, p);
  }
  return Vec::reduce_add(sum);
}

template <bool kExport>
float weights_of(DType v_dtype, const Tile& tile, const Ahead& ahead, float m, float* s,
                 float* out) {
  if (v_dtype != DType::bf16)
    return exponentials<WeightForm::floats, kExport>(tile, ahead, m, s, out);
  if (narrow_bf16()) return exponentials<WeightForm::bf16, kExport>(tile, ahead, m, s, out);
  return exponentials<WeightForm::bf16_as_floats, kExport>(tile, ahead, m, s, out);
}

// Turns the scores of query t of the tile into weights; m and l are the query's results.
void softmax_query(const KvLayout& layout, const AttentionChunkArgs& args, const StripList& strips,
                   int query, int t, Tile& tile) {
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
  const Ahead ahead = fetch_ahead(layout, strips, tile, t);
  if (args.weights == nullptr) {
    args.out.l[query] = weights_of<false>(layout.v_dtype, tile, ahead, m, s, nullptr);
    return;
  }
  float* const weights = args.weights + static_cast<int64_t>(query) * kChunkSlots;
  clear_unseen(tile, weights);
  args.out.l[query] = weights_of<true>(layout.v_dtype, tile, ahead, m, s, weights);
}

// How keys or values of a type are multiplied.
enum class PartKind : uint8_t { numbers, fp8, integers };
PF_INLINE PartKind part_kind(DType type) {
  return dtype_has_scales(type) ? PartKind::integers
         : dtype_is_fp8(type)   ? PartKind::fp8
                                : PartKind::numbers;
}

struct Parts {
  void (*score[3])(const KvLayout&, const StripList&, const TileQueries&, Tile&);
  void (*add[3])(const KvLayout&, const StripList&, const Tile&, float* o);
};
#define PF_PARTS                                                                       \
  {                                                                                    \
    {score_numbers, score_fp8, score_integers}, { add_numbers, add_fp8, add_integers } \
  }

void run_tile(const Parts& parts, const KvLayout& layout, const AttentionChunkArgs& args,
              const StripList& strips, int begin, int queries, Tile& tile) {
  const size_t stride = query_bytes(layout);
  tile.queries = queries;
  tile_masks(args, begin, queries, tile);
  const auto k = static_cast<int>(part_kind(layout.k_dtype));
  const auto v = static_cast<int>(part_kind(layout.v_dtype));
  parts.score[k](
      layout, strips,
      {static_cast<const std::byte*>(args.q) + static_cast<size_t>(begin) * stride, stride}, tile);
  const int steps = value_steps(layout.v_dtype);
  tile.fetched = queries < steps / 2 ? queries : steps / 2;
  for (int t = 0; t < queries; ++t) softmax_query(layout, args, strips, begin + t, t, tile);
  tile_kinds(queries, tile);
  parts.add[v](layout, strips, tile, args.out.o + static_cast<int64_t>(begin) * layout.head_dim);
}

// The size of the next tile: as even as can be, so that no tile of one query trails.
PF_INLINE int next_tile(int left) {
  const int tiles = (left + Vec::kMaxQueries - 1) / Vec::kMaxQueries;
  return (left + tiles - 1) / tiles;
}

// Where a chunk is read by several tiles, all but the first find it in the cache: the first two
// fetch half of the next chunk each, so that neither waits for memory while the other leaves it
// idle.
void share_fetches(StripList& strips, int tile, const std::byte** ahead) {
  for (int i = 0; i < strips.count; ++i) ahead[i] = strips.at[i % 2 == tile ? strips.count + i : i];
  strips.ahead = ahead;
}

void run_chunk(const Parts& parts, const KvLayout& layout, const AttentionChunkArgs& args) {
  StripList strips;
  list_strips(layout, args, strips);
  Tile tile;
  const int queries = args.rows * args.group;
  const std::byte* ahead[kStrips];
  const bool several = queries > Vec::kMaxQueries;
  for (int begin = 0, index = 0; begin < queries; ++index) {
    if (several) share_fetches(strips, index, ahead);
    const int n = next_tile(queries - begin);
    run_tile(parts, layout, args, strips, begin, n, tile);
    begin += n;
  }
}

}  // namespace
}  // namespace pagefold::kernels
