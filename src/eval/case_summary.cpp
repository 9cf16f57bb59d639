// Rows of the tasks that ask for an answer.
#include <map>

#include "eval/statistics.h"
#include "eval/summary.h"

namespace pagefold::eval {
namespace {

double score_of(const Json& line) {
  double sum = 0;
  for (const Json& s : line["scores"]) sum += s.get<double>();
  return line["scores"].empty() ? 0 : sum / static_cast<double>(line["scores"].size());
}

// One sampled answer of several that is right shows that the model can; a greedy one must be.
bool solved(const Json& line) {
  const double score = score_of(line);
  return line["scores"].size() > 1 ? score > 0 : score == 1;
}

const Cell* full_of(const Run& run, const Cell& cell) {
  for (const Cell& c : run.cells) {
    if (c.full() && c.kv_type == cell.kv_type) return &c;
  }
  return nullptr;
}

struct Group {
  double score = 0;
  int64_t n = 0;
};

}  // namespace

Units case_units(const Run& run, const Cell& cell) {
  Units units;
  for (int64_t s = 0; s < run.samples; ++s) {
    const Json* line = run.results.find(cell, s);
    if (line == nullptr) continue;
    units.values.push_back(score_of(*line));
    units.weights.push_back(1);
    units.samples.push_back(s);
  }
  return units;
}

void add_case_figures(const Run& run, const Cell& cell, Json& row) {
  const Cell* full = full_of(run, cell);
  std::map<std::string, Group> groups;
  std::map<std::string, double> details;
  std::vector<double> where_right, tokens;
  int64_t right = 0, n = 0, parsed = 0, cut = 0, answers = 0, graded = 0;
  bool same = !cell.full(), compacted = true;
  for (int64_t s = 0; s < run.samples; ++s) {
    const Json* line = run.results.find(cell, s);
    if (line == nullptr) continue;
    const double score = score_of(*line);
    Group& group = groups[(*line)["group"].get<std::string>()];
    group.score += score;
    ++group.n;
    ++n;
    right += score == 1 ? 1 : 0;
    parsed += line->value("parsed", int64_t{0});
    cut += line->value("cut", int64_t{0});
    answers += static_cast<int64_t>((*line)["scores"].size());
    tokens.push_back(line->value("tokens", 0.0));
    compacted &= line->value("least_compactions", int64_t{0}) > 0;
    const Json* reference = full ? run.results.find(*full, s) : nullptr;
    if (reference != nullptr && solved(*reference)) where_right.push_back(score);
    same &= reference != nullptr && (*reference)["answers"] == (*line)["answers"];
    for (const Json& d : line->value("details", Json::array())) {
      for (const auto& [key, value] : d.items()) details[key] += value.get<double>();
      ++graded;
    }
  }
  // Wilson's interval has no width problem at 0 and 1; shares of needles keep the bootstrap's.
  if (run.options.repeats == 1 && run.options.needles <= 1) {
    const Interval ci = wilson(right, n);
    row["ci95"] = n > 0 ? Json{ci.low, ci.high} : Json(nullptr);
  }
  row["cases_full_right"] = where_right.size();
  row["score_where_full_right"] = where_right.empty() ? Json(nullptr) : Json(mean(where_right));
  row["answers"] = answers;
  row["no_answer_found"] = answers - parsed;
  row["cut_at_max_tokens"] = cut;
  row["tokens_per_answer"] = tokens.empty() ? Json(nullptr) : Json(mean(tokens));
  for (const auto& [key, sum] : details) row[key] = sum / static_cast<double>(graded);
  // An answer whose cache was never compacted says nothing about compaction.
  row["same_answers"] = n > 0 && compacted && !cell.full() ? Json(same) : Json(nullptr);
  row["by_group"] = Json::array();
  for (const auto& [name, group] : groups) {
    row["by_group"].push_back(
        {{"group", name}, {"score", group.score / static_cast<double>(group.n)}, {"n", group.n}});
  }
}

}  // namespace pagefold::eval
