// The tasks behind run_eval(): each fills the results with what every cell and sample gave.
#pragma once

#include <string>
#include <vector>

#include "eval/cases.h"
#include "eval/eval.h"
#include "eval/grid.h"

namespace pagefold::eval {

// What a run has in hand.
struct Run {
  const EvalOptions& options;
  std::vector<Cell> cells;
  Results& results;
  int64_t samples = 0;
  std::vector<std::pair<Cell, std::string>> left_out;  // cells that cannot be, and why
  int64_t done = 0;

  bool missing(const Cell& cell) const;
  Status keep(const Cell& cell, int64_t sample, Json values);
  // Moves a cell to left_out. Error when it is the last one of its policy: a wrong word.
  Status leave_out(const Cell& cell, const Status& why);
};

// perplexity, kld, mass (text_tasks.cpp).
struct TextSettings {
  int64_t prompt = 128, tokens = 384;
};
Status run_text_task(Run& run, const TextSettings& settings, const std::string& text);

// needle, passkey, state_query, qa (answer_tasks.cpp). cases: those of a file; empty: they are made
// by the length of their tokens, once there is a model to count them.
Status run_answer_task(Run& run, std::vector<Case> cases);

// Engine options of a cell's type, without compression: values and groups apart as they were asked
// for, where the type has scales.
EngineOptions engine_of(const EvalOptions& options, const std::string& kv_type);
// Of what cells are measured against: keys and values in float32.
EngineOptions reference_engine_of(const EvalOptions& options);
// What a report calls it: "int8"; "k int8, v int4, groups of 32".
std::string kv_type_name(const EvalOptions& options, const std::string& kv_type);

// Sentences of our own, for needles to lie in and as a text where none is given: `count` of them
// from a stream of random numbers.
std::string filler(uint64_t seed, int64_t count);

}  // namespace pagefold::eval
