// What `pagefold bench` measured, and its forms.
#pragma once

#include <string>
#include <vector>

#include "bench/kernel_roofline.h"
#include "bench/local.h"
#include "bench/timed_backend.h"

namespace pagefold::bench {

struct LocalRow {
  std::string test;  // decode, prefill (steps over a made-up cache), answer (whole requests)
  std::string policy = "full", kv_type;
  int64_t batch = 1, context = 0, rows = 1;
  double ms = 0, tokens_per_s = 0;  // of the median step; of the decode of an answer
  // What the step must read a second: weights once, keys and values of every sequence. 0: not
  // counted.
  double gb_per_s = 0;
  StageTimes stages{};  // of the median step; seconds add up to it with `other_s`
  double other_s = 0;
  // answers
  double prefill_tokens_per_s = 0;
  uint64_t kv_bytes = 0, kv_peak_bytes = 0;
  int64_t compactions = 0;
};

struct LocalMeasurements {
  std::string model, machine, command;
  int threads = 1;
  double read_gb_per_s = 0;  // measured in the same run
  std::vector<LocalRow> rows;
  KernelTimes kernels;  // empty: not asked for
};

BenchReport local_report(const LocalMeasurements& m, bool roofline);

}  // namespace pagefold::bench
