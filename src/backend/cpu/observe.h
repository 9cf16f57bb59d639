// What a step's attention leaves for cache policies (SeqSignals): the mass that slots get, the
// rows that passed them by, and the queries themselves.
//
// Mass needs no second pass over the keys: the chunk kernel leaves p = exp(s - m) of a tile of rows
// in a strip [part][row * group][256]; once the rows' M and L are final, every slot gets
// p exp(m - M) / L, row after row. The memory is one tile's strip a thread.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/slot_source.h"
#include "kernels/kernels.h"

namespace pagefold::cpu {

// Rows of a step that are observed: [begin, end) of the sequence's.
struct ObservedRows {
  int begin = 0, end = 0;
};
inline ObservedRows observed_rows(const SeqRows& seq) {
  const SeqSignals* s = seq.signals;
  if (s == nullptr || (s->mass == nullptr && s->history == nullptr) || s->mass_rows <= 0) return {};
  return {s->mass_row, s->mass_row + s->mass_rows};
}

// A tile of observed rows whose attention is complete.
struct ObservedTile {
  const SeqSignals* signals = nullptr;
  int table = 0;          // layer * n_kv_heads + head
  int row = 0, rows = 0;  // of the sequence's rows in the step
  int group = 1;          // query index = (row - tile.row) * group + head of the group
  int64_t window = 0;     // AttentionShape::window
  int part_begin = 0, part_end = 0;
  const float* weights = nullptr;  // [part_end - part_begin][stride][256]
  const float* part_m = nullptr;   // [part_end - part_begin][stride]
  int stride = 0;                  // queries between two parts, at least rows * group
  const float* m = nullptr;        // [rows * group] of the whole rows
  const float* l = nullptr;
};
// Adds to signals->mass and shifts into signals->history of the table. Calls for the rows of a
// table must come in row order. factor: scratch of [rows * group].
void observe_tile(const kernels::Kernels& k, const SlotSource& source, const ObservedTile& tile,
                  float* factor);

// Adds row `row`'s query of one head, un-rotated, to the statistics. head: layer * n_heads + head.
void add_query_stats(const SeqSignals& s, int64_t head, int row, const float* q, int rot,
                     bool half_layout);
// Puts row `row`'s rotated query into the ring.
void keep_query(const SeqSignals& s, int64_t head, int row, int n_rows, const float* q,
                int head_dim);

}  // namespace pagefold::cpu
