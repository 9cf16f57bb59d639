// The per-slot memory of one sequence's policy: positions, mass, history. Owned by the sequence,
// indexed by slot, never inside shared blocks; it moves with the slots.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/cache.h"
#include "kv/model.h"
#include "kv/moves.h"
#include "kv/policy.h"
#include "kv/signals.h"

namespace pagefold {

class SequenceSignals {
 public:
  // expected_slots: slots a table for which nothing is reallocated.
  SequenceSignals(const KvModel& model, const Needs& needs, int64_t expected_slots);
  SequenceSignals(const SequenceSignals&) = delete;
  SequenceSignals& operator=(const SequenceSignals&) = delete;

  // Slots for `rows` new tokens at the end of every compressed table: positions first_pos ..., no
  // mass yet.
  void extend(const TableView* tables, int64_t first_pos, int64_t rows);
  // The arrays of this step for a backend, with observed rows as given; valid until the next call.
  const Observation& observe(int64_t first_pos, int first_row, int n_rows, int stats_first_row,
                             int stats_rows);
  void clear_mass();             // MassKeep::window: a new window begins
  void pool_prompt(int kernel);  // Needs::prompt_pool
  void fold();                   // MassKeep::interval_max
  void apply(const MovePlan& plan, int block_size);
  void clear();  // no slots

  int64_t slots(int table) const { return len_[static_cast<size_t>(table)]; }
  const int32_t* positions(int table) const;
  float* mass(int table);             // null: not kept
  SlotSignals view(int table) const;  // without flags and keys
  const QuerySums& query_sums() const { return sums_; }
  const QueryRing& query_ring() const { return ring_; }
  const Needs& needs() const { return needs_; }
  // Bytes of the arrays' used parts: aux_bytes of usage.
  int64_t bytes() const;

  // Everything, for a pause; restore() takes it back into a fresh object of the same shape.
  std::string save() const;
  Status restore(std::string_view bytes);

 private:
  void grow(int64_t slots);
  template <class F>
  void for_arrays(F&& f);

  const KvModel& model_;
  const Needs needs_;
  int64_t capacity_ = 0;
  std::vector<int64_t> len_;
  std::vector<std::vector<int32_t>> positions_;  // [n_tables][capacity]
  std::vector<std::vector<float>> mass_, interval_;
  std::vector<std::vector<uint64_t>> history_bits_;
  std::vector<std::vector<float>> history_mass_;
  std::vector<HistoryArrays> history_;
  std::vector<float*> mass_pointers_;
  int64_t interval_rows_ = 0;
  std::vector<double> sum_store_;
  QuerySums sums_;
  std::vector<float> ring_store_;
  QueryRing ring_;
  Observation observation_;
};

}  // namespace pagefold
