// Plain data between policies and backends: what is observed while attention runs, and what is scored on demand.
// kv/ sees no bytes of keys: a backend computes these numbers on the stored form.
#pragma once

#include <cstdint>

namespace pagefold {

// f(p) summed over observed rows, per slot; p = attention probability of the slot for a row and query head.
enum class MassForm : uint8_t {
  probability,     // p, mean over the group's query heads
  squared,         // p^2, summed over the group's query heads (KV-Compress)
};
// What happens to the accumulated array when a new row (or the rows of an interval) comes.
enum class MassKeep : uint8_t {
  sum,             // all observed rows since the sequence began (H2O, KV-Compress)
  interval_sum,    // rows since the last compaction; then folded by the policy (snapkv-d)
  latest,          // the last observed row alone (TOVA)
};

// Scored by the backend over the stored keys when a compaction is planned.
enum class KeyScore : uint8_t {
  none,
  coefficients,    // triattention: per query head, sum_f Re(w_f) Re(k_f) + Im(w_f) Im(k_f) + e_f |k_f|
  similarity,      // rkv: column means of the cosine similarity of keys, see policies/rkv
  window_logits,   // rkv: logits of the last w queries (query ring) against all keys, max over the group
};

// Statistics of un-rotated queries (after q-norm), per (layer, query head, band): sums in double, in token order.
struct QueryStats {
  int64_t rows = 0;
  const double* sum_re = nullptr;   // [n_layers][n_heads][bands]
  const double* sum_im = nullptr;
  const double* sum_abs = nullptr;
};

// Slots of one (layer, KV head) and what is known of each. All arrays have n entries; absent ones are null.
struct SlotSignals {
  int64_t n = 0;
  const int64_t* positions = nullptr;     // original positions; strictly increasing under packing `order`
  const float* mass = nullptr;            // accumulated as Needs asks
  const float* mass2 = nullptr;           // second accumulator (interval part), if asked
  const uint64_t* history = nullptr;      // [n][history_words] row bits, newest in bit 0 of word 0 (scissorhands)
  const float* history_mass = nullptr;    // mass over the rows of the history
  const float* const* key_scores = nullptr;  // [group] arrays of n: result of KeyScore for each query head
  const float* similarity = nullptr;      // KeyScore::similarity
};

}  // namespace pagefold
