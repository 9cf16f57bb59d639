// Plain data between policies and backends: what is recorded while attention runs, and what is
// scored over the stored keys on demand. kv/ sees no bytes of keys; a backend computes these
// numbers on the stored form and writes them into arrays that the sequence owns by slot.
#pragma once

#include <cstdint>

namespace pagefold {

// f(p) added to a slot for every observed row; p = attention probability of the slot.
enum class MassForm : uint8_t {
  none,
  probability,  // p, mean over the group's query heads
  squared,      // p^2, sum over the group's query heads (KV-Compress)
};

// Scored by the backend over the stored keys when a compaction is planned.
enum class KeyScore : uint8_t {
  none,
  coefficients,  // triattention: see KeyCoefficients
  redundancy,    // rkv: window_logits and similarity of ScoredKeys
};

// The last `window` observed rows of one table, as one bit a row and slot (1 = the probability was
// below the uniform 1 / visible slots) and coarse sums of the probability.
// Row r owns bit r % window and segment r / segment_rows % segments.
struct HistoryArrays {
  uint64_t* bits = nullptr;  // [words][stride]
  float* mass = nullptr;     // [segments][stride]
  int64_t stride = 0;
  int window = 0, words = 0;
  int segments = 0, segment_rows = 0;
};

// One observed row: p[n] = the group's mean probability of slots [0, n), `visible` of them counted.
// row: the row's position, so that consecutive rows have consecutive numbers.
inline void push_history_row(const HistoryArrays& h, int64_t row, const float* p, int64_t n,
                             int64_t visible) {
  const auto bit = static_cast<int>(row % h.window);
  uint64_t* word = h.bits + static_cast<int64_t>(bit / 64) * h.stride;
  const uint64_t mask = uint64_t{1} << (bit % 64);
  const float uniform = 1.0f / static_cast<float>(visible);
  float* sums = h.mass + row / h.segment_rows % h.segments * h.stride;
  const bool first = row % h.segment_rows == 0;
  for (int64_t s = 0; s < n; ++s) {
    word[s] = (word[s] & ~mask) | (p[s] < uniform ? mask : 0);
    sums[s] = first ? p[s] : sums[s] + p[s];
  }
}

// Sums over un-rotated queries (after q-norm), in token order: [n_layers][n_heads][bands] each.
struct QuerySums {
  int64_t rows = 0;  // counted once a row, by whoever runs the step, not once a layer
  double* re = nullptr;
  double* im = nullptr;
  double* abs = nullptr;
};

// The last `window` rotated queries, unscaled: [n_layers][window][n_heads][head_dim]; the row of
// position p lies at index p % window.
struct QueryRing {
  float* data = nullptr;
  int window = 0;
};

// What one sequence wants recorded during one step. Rows count from the sequence's first row of
// the step; all arrays reach to slot len + rows of the step. Tables with a null entry are left out
// (sliding-window layers). Nothing asked: everything null and 0.
struct Observation {
  MassForm form = MassForm::none;
  int first_row = 0, n_rows = 0;           // rows whose probabilities are recorded
  int64_t first_position = 0;              // position of the step's row 0
  float* const* mass = nullptr;            // [n_tables] += f(p); null with `history`
  const HistoryArrays* history = nullptr;  // [n_tables] push_history_row for each row, ascending
  int stats_first_row = 0, stats_rows = 0;
  const QuerySums* stats = nullptr;  // += over the stats rows
  const QueryRing* ring = nullptr;   // every row of the step
  bool any() const { return n_rows > 0 || stats_rows > 0 || ring != nullptr; }
};

// score of key k for query head h of layer l, over the rotary bands f of the stored (rotated) key,
// k_f = re + i im:
//   max over sets s of sum_f (w_re[s] re + w_im[s] im)  +  sum_f e |k_f|
struct KeyCoefficients {
  int sets = 0;                 // 1 for the mean over offsets
  const float* w_re = nullptr;  // [sets][n_layers][n_heads][bands]
  const float* w_im = nullptr;
  const float* e = nullptr;  // [n_layers][n_heads][bands]
  int bands = 0;
};

// What a compaction wants scored: one of the two forms.
struct KeyScoreQuery {
  KeyScore kind = KeyScore::none;
  KeyCoefficients coefficients;
  const QueryRing* ring = nullptr;  // redundancy: the queries
  int64_t next_position = 0;        // the newest query has position next_position - 1
  int window = 0;                   // redundancy: queries used
  float threshold = 0;              // redundancy: similarity above which a column is cleared
};

// Results for one table; the backend fills slots [0, len).
//   coefficients: logits[g][s], g = query head of the group
//   redundancy:   logits[i][s], i = 0 is the oldest of the window's queries; max over the group of
//                 q . k * scale. similarity[s]: mean over rows of the cosine matrix of the stored
//                 keys with a zero diagonal, after each row lost its newest column above the
//                 threshold (none above: column 0), as R-KV has it.
struct ScoredKeys {
  float* logits = nullptr;  // [rows][stride]
  int64_t stride = 0;
  float* similarity = nullptr;  // [stride]
  int rows = 0;
};

// Why a slot may not be dropped, or does not count.
enum SlotFlag : uint8_t {
  kSlotEvictable = 0,
  kSlotProtected = 1,  // sink or recent: kept, inside the budget
  kSlotPinned = 2,     // protected prompt or kv.keep: kept, on top of the budget
  kSlotDead = 4,       // marked by packing `off`: no longer there
};

// Slots of one (layer, KV head) and what is known of each. Arrays have n entries; absent ones are
// null.
struct SlotSignals {
  int64_t n = 0;
  const int32_t* positions = nullptr;    // original positions; ascending under packing `order`
  const uint8_t* flags = nullptr;        // SlotFlag bits
  const float* mass = nullptr;           // as Needs asks
  const float* interval_mass = nullptr;  // since the last fold (MassKeep::interval_max)
  int64_t interval_rows = 0;             // rows in interval_mass
  const HistoryArrays* history = nullptr;
  const ScoredKeys* keys = nullptr;
};

}  // namespace pagefold
