// From lines to figures: one row a cell, with intervals and paired tests.
#pragma once

#include <string>
#include <vector>

#include "eval/run.h"

namespace pagefold::eval {

// What a cell's score is made of. A unit is what is drawn whole: a stretch of 32 tokens, or a case.
struct Units {
  std::vector<double> values, weights;
  std::vector<int64_t> samples;  // which sample each belongs to
};

// How a task is read.
struct Measure {
  std::string key;    // of the row's main figure: "kld_mean", "perplexity", "score" ...
  std::string label;  // for a plot's axis
  bool higher_better = false;
  bool exponential = false;  // the figure is exp of the units' mean
};
Measure measure_of(const std::string& task);

// {"task", "settings", "rows", "left_out", "times"}.
Json summary(const Run& run, const Json& settings);
// The table of a summary for a terminal, and the page.
std::string text_table(const Json& summary);
std::string html_page(const Json& summary, const std::string& command);

// By task: units of a cell, in the order of samples, and what else its row has.
Units text_units(const Run& run, const Cell& cell);
void add_text_figures(const Run& run, const Cell& cell, Json& row);
Units case_units(const Run& run, const Cell& cell);
void add_case_figures(const Run& run, const Cell& cell, Json& row);
bool is_text_task(const std::string& task);

}  // namespace pagefold::eval
