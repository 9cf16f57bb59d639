// What a full cache gives attention to, and when: for each token and table the attention of later
// queries, summed over windows of rows. The oracle keeps what will be looked at; `mass` measures
// what was lost.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/forced.h"

namespace pagefold::eval {

class Future {
 public:
  static constexpr int64_t kWindow = 32;  // rows

  // Of a text of n tokens whose first n_prompt are a prompt. with_outputs: also keep one query a
  // window, and keys and values, for output_error().
  Future(const ForcedModel& model, int64_t n, int64_t n_prompt, bool with_outputs);

  // For the full run over a float32 cache: sets the hooks that record.
  void attach(ForcedModel& model, ForcedHooks& hooks);

  int64_t windows() const { return static_cast<int64_t>(mass_.size()); }
  int64_t first_row(int64_t window) const { return n_prompt_ + window * kWindow; }
  // [n] by position; a window's rows add up to their number over all positions. Empty for layers
  // with sliding windows.
  const std::vector<float>& mass(int64_t window, int table) const {
    return mass_[static_cast<size_t>(window)][static_cast<size_t>(table)];
  }
  int64_t rows(int64_t window) const;
  // Into the signals of an oracle's sequence that computed `computed` tokens: what every held
  // position will get from then on, to the end of the text.
  void tell(SequenceCompression& c) const;
  // Relative error of the attention output of the window's first row, if only the positions of
  // `held` (ascending) were there besides its own: mean over the table's query heads of |o - o'| /
  // |o|. A double computation.
  double output_error(int64_t window, int table, const std::vector<int32_t>& held) const;

 private:
  const Observation* observe(int64_t first, int64_t rows);

  const KvModel& kv_;
  const int64_t n_, n_prompt_;
  const bool with_outputs_;
  double scale_ = 1;
  std::vector<std::vector<std::vector<float>>> mass_;  // [windows][tables][n]
  std::vector<float*> pointers_;
  Observation observation_;
  QueryRing ring_;
  std::vector<float> ring_store_;
  std::vector<std::vector<float>> queries_;        // [windows][n_layers * n_heads * head_dim]
  std::vector<std::vector<float>> keys_, values_;  // [tables][n][head_dim]
};

}  // namespace pagefold::eval
