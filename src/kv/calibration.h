// Query statistics for triattention: E[q_f] and E|q_f| of un-rotated queries (after q-norm) per
// layer, query head and rotary band, and the file that holds them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/model.h"
#include "kv/policy.h"

namespace pagefold {

struct CalibrationStats {
  int n_layers = 0, n_heads = 0, bands = 0;
  std::vector<double> inv_freq;           // [bands]
  int64_t rows = 0;                       // tokens the means were taken over
  std::string model;                      // free text: what it was made for
  std::vector<float> re, im, abs;         // means, [n_layers][n_heads][bands]
  std::vector<double> re_d, im_d, abs_d;  // the same, filled by finish()

  void finish();
  QueryStatsView view() const { return {re_d.data(), im_d.data(), abs_d.data(), 1.0}; }
};

// The statistics of `rows` observed queries.
CalibrationStats calibration_from_sums(const KvModel& model, const QuerySums& sums,
                                       std::string name);
// kInvalidArgument naming the field: layers, heads, bands, or a rotary frequency that differs by
// more than 1e-4 of its value.
Status check_calibration(const CalibrationStats& stats, const KvModel& model);

// File format, little endian: "PFCAL01\n", u32 layers, heads, bands, name bytes, u64 rows, name,
// f64 inv_freq[bands], f32 re, im, abs[layers][heads][bands] each, u64 FNV-1a of all before.
std::string write_calibration(const CalibrationStats& stats);
// kDataLoss naming the field. Sizes are checked before anything is allocated.
Result<CalibrationStats> read_calibration(std::string_view bytes);

}  // namespace pagefold
