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
//   K::run<T, R>(k, tile, row)
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

// With a row or two memory is what a product waits for, and T tiles are T streams, each too short
// for the hardware to follow: while they are read, the next T tiles are fetched, into L2.
template <int T, int R>
struct FetchAhead {
  const char* next;
  size_t tile_bytes, step, end = 0, at = 0;
  // steps: calls of fetch(); an input or less than one is none.
  FetchAhead(const std::byte* tiles, size_t bytes, int64_t steps)
      : next(reinterpret_cast<const char*>(tiles) + T * bytes),
        tile_bytes(bytes),
        step(bytes / static_cast<size_t>(steps > 0 ? steps : 1)) {}
  PF_ISA_INLINE void fetch() {
    if constexpr (R > 2) return;
    for (end += step; at < end; at += 64) {
      PF_UNROLL
      for (int t = 0; t < T; ++t)
        __builtin_prefetch(next + static_cast<size_t>(t) * tile_bytes + at, 0, 2);
    }
  }
};

template <class K, int T, int R = 1>
void run_rows(const K& k, int tile, int row, int rows) {
  if (rows == R) {
    K::template run<T, R>(k, tile, row);
  } else if constexpr (R < K::kMaxRows) {
    run_rows<K, T, R + 1>(k, tile, row, rows);
  }
}

// Rows [row0, row_end) in blocks of nearly equal size: 9 rows run as 5 + 4, not as 8 + 1.
template <class K, int T>
void run_tiles(const K& k, int tile, int row0, int row_end) {
  int blocks = (row_end - row0 + K::kMaxRows - 1) / K::kMaxRows;
  for (int row = row0; row < row_end; --blocks) {
    const int n = (row_end - row + blocks - 1) / blocks;
    run_rows<K, T>(k, tile, row, n);
    row += n;
  }
}

template <class K>
void run_panel(const K& k, int tile_begin, int tile_end, int row0, int row_end) {
  int t = tile_begin;
  if constexpr (K::kFewRowTiles > 0) {
    if (row_end - row0 <= 2) {
      for (; t + K::kFewRowTiles <= tile_end; t += K::kFewRowTiles) {
        if (row_end - row0 == 2) {
          K::template run<K::kFewRowTiles, 2>(k, t, row0);
        } else {
          K::template run<K::kFewRowTiles, 1>(k, t, row0);
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
