// The passes of the chunk kernel, a file each for numbers (float32, float16, bfloat16), fp8 and
// integers, so that keys and values of any two types go together. Plain data and declarations:
// attention_tile.h drives them, once an instruction set.
#pragma once

#include "kernels/paged.h"

namespace pagefold::kernels {

constexpr int kStrips = kChunkSlots / kStripSlots;
constexpr int kMostTileQueries = 6;  // in any instruction set

// How far ahead of the strip being read the next ones are fetched: strips of 1 to 4 KB are too
// short for the hardware to notice. Into L2, since a chunk is larger than L1. A whole chunk is best
// (every pass then waits for nothing), but where strips are long half of one is.
constexpr int kPrefetchStrips = kStrips, kPrefetchLongStrips = kStrips / 2;
constexpr size_t kLongStripBytes = 4096;

// The chunk's strips, then the first of the next chunk. What a layout computes by division is kept
// here: a strip is read in less time than a division takes.
struct StripList {
  const std::byte* at[kStrips + kPrefetchStrips];
  const std::byte* const* ahead;  // ahead[i] is to be prefetched while at[i] is read
  int count;
  int groups;       // of dimensions that share a scale
  size_t k_scales;  // from a strip's start, as are the next two
  size_t v, v_scales;
};

// One tile's state. Rows are kChunkSlots floats, so that a query's is a constant distance away.
struct alignas(64) Tile {
  float s[kMostTileQueries * kChunkSlots];                            // scores, then weights
  uint16_t mask[kMostTileQueries][kStrips];                           // visible slots
  enum Kind : uint8_t { skip, full, uniform, ragged } kind[kStrips];  // for the value pass
  int first, last;                                                    // strips that any query sees
  int queries;
  // Steps of the value pass over a strip (dim dimensions of some slots each) whose values the
  // softmax has fetched ahead, so that memory is never idle for long.
  int fetched;
};

// Prepared queries of the tile: the first, and how far the next one is.
struct TileQueries {
  const std::byte* q;
  size_t stride;
};

// Whether this CPU multiplies pairs of bfloat16 slower than it widens them (matmul_isa.h).
bool slow_dpbf16();

// Bytes and signs of the float32 (bfloat16, in fact) that the 128 magnitudes of fp8 stand for.
struct alignas(64) Fp8Table {
  uint8_t low[128], high[128];
};
extern const Fp8Table kE4m3Table, kE5m2Table;

}  // namespace pagefold::kernels

// score_*: raw scores of the strips [first, last) into tile.s. add_*: o[queries][head_dim] = the
// weights in tile.s times the values, for what tile.mask shows.
#define PF_DECLARE_PARTS                                                             \
  void score_numbers(const KvLayout&, const StripList&, const TileQueries&, Tile&);  \
  void score_fp8(const KvLayout&, const StripList&, const TileQueries&, Tile&);      \
  void score_integers(const KvLayout&, const StripList&, const TileQueries&, Tile&); \
  void add_numbers(const KvLayout&, const StripList&, const Tile&, float* o);        \
  void add_fp8(const KvLayout&, const StripList&, const Tile&, float* o);            \
  void add_integers(const KvLayout&, const StripList&, const Tile&, float* o);

namespace pagefold::kernels::avx2 {
PF_DECLARE_PARTS
}
namespace pagefold::kernels::avx512 {
PF_DECLARE_PARTS
}

#undef PF_DECLARE_PARTS
