// `pagefold bench MODEL`: how fast a model's steps are at a depth, where their time goes, and what
// compression costs a whole answer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pagefold/options.h"

namespace pagefold::bench {

struct LocalOptions {
  EngineOptions engine;
  std::vector<int64_t> contexts = {512, 4096};   // tokens cached before the step
  std::vector<int64_t> batches = {1, 4};         // sequences of a decode step
  std::vector<std::string> kv_types = {"auto"};  // --kv-cache-dtype
  std::vector<std::string> policies = {"full", "triattention"};
  std::string budget = "256";
  int64_t prompt = 512;   // of whole answers, and rows of a prefill step
  int64_t tokens = 512;   // of whole answers
  int repeat = 7;         // steps timed, of which the median counts
  bool roofline = false;  // stages of each step in the text
  std::string command;    // as typed, for the report
  std::function<void(const std::string&)> progress;
};

struct BenchReport {
  std::string json, text, html;
};

// kInvalidArgument: a policy, type or size that the model cannot have.
Result<BenchReport> run_local(const LocalOptions& options);

}  // namespace pagefold::bench
