#include "eval/summary.h"

#include <algorithm>
#include <cmath>

#include "eval/statistics.h"

namespace pagefold::eval {
namespace {

Json number(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }
Json pair_of(const Interval& i) {
  return std::isfinite(i.low) ? Json{i.low, i.high} : Json(nullptr);
}

Units units_of(const Run& run, const Cell& cell) {
  return is_text_task(run.options.task) ? text_units(run, cell) : case_units(run, cell);
}

// Means over the samples of what every line has.
void add_memory(const Run& run, const Cell& cell, Json& row) {
  double bytes = 0, peak = 0, compactions = 0, kept = 0;
  int64_t never = 0, n = 0;
  for (int64_t s = 0; s < run.samples; ++s) {
    const Json* line = run.results.find(cell, s);
    if (line == nullptr) continue;
    ++n;
    bytes += line->value("kv_bytes", 0.0);
    peak += line->value("kv_bytes_peak", 0.0);
    kept += line->value("kept_tokens", 0.0);
    const double c = line->value("compactions", 0.0);
    compactions += c;
    never += c == 0 ? 1 : 0;
  }
  const auto count = static_cast<double>(std::max<int64_t>(1, n));
  row["kv_bytes"] = bytes / count;
  row["kv_bytes_peak"] = peak / count;
  row["kept_tokens"] = kept / count;
  row["compactions"] = compactions / count;
  row["samples"] = n;
  row["never_compacted"] = cell.full() ? 0 : never;
}

// The same units under two cells.
Json paired(const Units& a, const Units& b, const std::string& against, bool higher_better) {
  std::vector<double> difference;
  int64_t wins = 0, losses = 0;
  for (size_t i = 0; i < std::min(a.values.size(), b.values.size()); ++i) {
    const double d = a.values[i] - b.values[i];
    difference.push_back(d);
    if (d == 0) continue;
    ((d > 0) == higher_better ? wins : losses) += 1;
  }
  double sum = 0, weight = 0;
  for (size_t i = 0; i < difference.size(); ++i) {
    sum += a.weights[i] * difference[i];
    weight += a.weights[i];
  }
  return {{"against", against},
          {"difference", number(sum / weight)},
          {"ci95", pair_of(bootstrap_mean(difference, a.weights))},
          {"better", wins},
          {"worse", losses},
          {"equal", static_cast<int64_t>(difference.size()) - wins - losses},
          {"p", sign_test(wins, losses)}};
}

Json comparisons(const Run& run, const Cell& cell, const Units& units, bool higher_better) {
  Json out = Json::array();
  for (const char* other : {"full", "streaming", "random", "oracle"}) {
    for (const Cell& c : run.cells) {
      const bool same = c.full() || c.budget == cell.budget;
      if (c.policy != other || c.kv_type != cell.kv_type || !same || c.key() == cell.key())
        continue;
      const Units theirs = units_of(run, c);
      if (!units.values.empty() && units.samples == theirs.samples)
        out.push_back(paired(units, theirs, c.name(), higher_better));
    }
  }
  return out;
}

Json row_of(const Run& run, const Cell& cell) {
  const Measure measure = measure_of(run.options.task);
  const Units units = units_of(run, cell);
  Json row = {{"policy", cell.policy},
              {"budget", cell.budget.empty() ? Json(nullptr) : Json(cell.budget)},
              {"kv_cache_dtype", kv_type_name(run.options, cell.kv_type)}};
  add_memory(run, cell, row);
  double sum = 0, weight = 0;
  for (size_t i = 0; i < units.values.size(); ++i) {
    sum += units.weights[i] * units.values[i];
    weight += units.weights[i];
  }
  const auto shown = [&](double v) { return measure.exponential ? std::exp(v) : v; };
  Interval ci = bootstrap_mean(units.values, units.weights);
  row[measure.key] = number(weight > 0 ? shown(sum / weight) : NAN);
  row["n"] = static_cast<int64_t>(weight);
  row["ci95"] = pair_of({shown(ci.low), shown(ci.high)});
  if (is_text_task(run.options.task)) {
    add_text_figures(run, cell, row);
  } else {
    add_case_figures(run, cell, row);
  }
  row["paired"] = comparisons(run, cell, units, measure.higher_better);
  return row;
}

}  // namespace

Measure measure_of(const std::string& task) {
  if (task == "perplexity") return {"perplexity", "perplexity", false, true};
  if (task == "kld") return {"kld_mean", "KL divergence from the full cache, nats a token"};
  if (task == "mass") return {"lost_mass", "share of the future attention that was evicted"};
  return {"score", "share of right answers", true};
}

bool is_text_task(const std::string& task) {
  return task == "perplexity" || task == "kld" || task == "mass";
}

Json summary(const Run& run, const Json& settings) {
  Json rows = Json::array(), left_out = Json::array(), times = Json::array();
  for (const Cell& cell : run.cells) {
    rows.push_back(row_of(run, cell));
    double seconds = 0, tokens = 0, answers = 0;
    for (const Json& t : run.results.times(cell)) {
      seconds += t.value("seconds", 0.0);
      tokens += t.value("tokens", 0.0);
      answers += t.value("answers", 0.0);
    }
    if (seconds <= 0) continue;
    Json t = {{"policy", cell.policy},
              {"budget", cell.budget},
              {"kv_cache_dtype", kv_type_name(run.options, cell.kv_type)},
              {"seconds", seconds},
              {"tokens_per_s", tokens / seconds}};
    if (answers > 0) t["answers_per_s"] = answers / seconds;
    times.push_back(std::move(t));
  }
  for (const auto& [cell, why] : run.left_out) {
    left_out.push_back({{"policy", cell.policy},
                        {"budget", cell.budget},
                        {"kv_cache_dtype", kv_type_name(run.options, cell.kv_type)},
                        {"why", why}});
  }
  return {{"task", run.options.task},
          {"settings", settings},
          {"rows", std::move(rows)},
          {"left_out", std::move(left_out)},
          {"times", std::move(times)}};
}

}  // namespace pagefold::eval
