// The loops around the vector kernels: which rows and tiles form a block. Internal to ISA files.
// Everything has internal linkage, so each file gets its own code for its own instruction set.
//
// A kernel K computes R rows x T tiles at once. Which R and T an output was computed with depends
// on the call, so K must perform the same operations in the same order for an output whatever they
// are.
//   K::kMaxRows, K::kTiles        the largest block
//   K::kFewRowTiles               tiles at once with 1 or 2 rows: 1, where one tile's sums keep up
//                                 with memory (one stream, which the hardware follows), else 4, to
//                                 have enough independent sums in flight
//   K::run<T, R>(k, tile, row, ahead)
//   k.source                      a TileSource
#pragma once

#include "kernels/matmul_isa.h"
#include "kernels/packed_layout.h"

namespace pagefold::kernels {
namespace {

// What every kernel needs to know of its call.
struct TileSource {
  const MatmulArgs* args;
  size_t tile_bytes;
  const std::byte* tile(int t) const {
    return args->weights->data + tile_bytes * static_cast<size_t>(t);
  }
};

// What a call fetches into L2 while it multiplies: its share of the tiles that come next.
struct Ahead {
  const std::byte* from = nullptr;
  size_t bytes = 0;
};

// A few rows wait for memory. T tiles are T streams, each too short for the hardware to follow, and
// only the first block of rows reads them from memory: it would be idle while the others run. So
// the next T tiles are fetched bit by bit, by all blocks of rows of these.
class FetchAhead {
 public:
  // steps: calls of fetch() to come; an input or less than one is none.
  PF_ISA_INLINE FetchAhead(const Ahead& ahead, int64_t steps)
      : from_(reinterpret_cast<const char*>(ahead.from)),
        step_(ahead.bytes / static_cast<size_t>(steps > 0 ? steps : 1)) {}
  PF_ISA_INLINE void fetch() {
    for (end_ += step_; at_ < end_; at_ += 64) __builtin_prefetch(from_ + at_, 0, 2);
  }

 private:
  const char* from_;
  size_t step_, end_ = 0, at_ = 0;
};

template <class K, int T, int R = 1>
void run_rows(const K& k, int tile, int row, int rows, const Ahead& ahead) {
  if (rows == R) {
    K::template run<T, R>(k, tile, row, ahead);
  } else if constexpr (R < K::kMaxRows) {
    run_rows<K, T, R + 1>(k, tile, row, rows, ahead);
  }
}

// Rows [row0, row_end) in blocks of nearly equal size: 9 rows run as 5 + 4, not as 8 + 1.
template <class K, int T>
void run_tiles(const K& k, int tile, int row0, int row_end) {
  int blocks = (row_end - row0 + K::kMaxRows - 1) / K::kMaxRows;
  const size_t bytes = T == 1 && blocks == 1 ? 0 : T * k.source.tile_bytes;
  const std::byte* const next = k.source.tile(tile + T);
  const auto rows = static_cast<size_t>(row_end - row0);
  for (int row = row0; row < row_end; --blocks) {
    const int n = (row_end - row + blocks - 1) / blocks;
    const size_t done = static_cast<size_t>(row - row0);
    const size_t from = bytes * done / rows;
    run_rows<K, T>(k, tile, row, n,
                   {next + from, bytes * (done + static_cast<size_t>(n)) / rows - from});
    row += n;
  }
}

template <class K>
void run_panel(const K& k, int tile_begin, int tile_end, int row0, int row_end) {
  int t = tile_begin;
  if constexpr (K::kFewRowTiles > 0) {
    constexpr int T = K::kFewRowTiles;
    if (row_end - row0 <= 2) {
      for (; t + T <= tile_end; t += T) {
        // One tile is one long stream, which the hardware follows.
        const Ahead ahead{k.source.tile(t + T), T == 1 ? 0 : T * k.source.tile_bytes};
        if (row_end - row0 == 2) {
          K::template run<T, 2>(k, t, row0, ahead);
        } else {
          K::template run<T, 1>(k, t, row0, ahead);
        }
      }
    }
  }
  if constexpr (K::kTiles > 1) {
    for (; t + K::kTiles <= tile_end; t += K::kTiles) run_tiles<K, K::kTiles>(k, t, row0, row_end);
  }
  for (; t < tile_end; ++t) run_tiles<K, 1>(k, t, row0, row_end);
}

// Inputs of a panel stay in the L2 cache while all tiles of weights pass by.
constexpr int64_t kPanelBytes = 640 << 10;

template <class K>
PF_ISA_INLINE int panel_rows(int64_t row_bytes) {
  const int64_t rows = kPanelBytes / row_bytes / K::kMaxRows * K::kMaxRows;
  return static_cast<int>(rows < 4 * K::kMaxRows ? 4 * K::kMaxRows : rows > 8192 ? 8192 : rows);
}

template <class K>
void run_all(const K& k, const MatmulArgs& a, int64_t row_bytes) {
  const int panel = panel_rows<K>(row_bytes);
  for (int row = 0; row < a.rows; row += panel) {
    const int end = a.rows - row < panel ? a.rows : row + panel;
    run_panel(k, a.tile_begin, a.tile_end, row, end);
  }
}

}  // namespace
}  // namespace pagefold::kernels
