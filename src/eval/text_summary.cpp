// Rows of perplexity, kld and mass.
#include <algorithm>
#include <cmath>

#include "base/percentile.h"
#include "eval/future.h"
#include "eval/statistics.h"
#include "eval/summary.h"

namespace pagefold::eval {
namespace {

constexpr size_t kBlock = 32;  // tokens of a unit: neighbours are too alike to be drawn alone

std::vector<double> list_of(const Json& line, const char* key) {
  std::vector<double> out;
  if (!line.contains(key)) return out;
  for (const Json& v : line[key]) out.push_back(v.is_number() ? v.get<double>() : NAN);
  return out;
}

template <class F>
void for_samples(const Run& run, const Cell& cell, F f) {
  for (int64_t s = 0; s < run.samples; ++s) {
    if (const Json* line = run.results.find(cell, s)) f(s, *line);
  }
}

std::string bucket_name(size_t bucket, size_t last) {
  const int64_t low = bucket == 0 ? 1 : int64_t{16} << bucket;
  return bucket == last ? fmt::format("{}+", low)
                        : fmt::format("{}-{}", low, (int64_t{32} << bucket) - 1);
}

// Mean divergence of the rows whose newest evicted token lay 1-31, 32-63 ... tokens before them.
Json kld_by_distance(const Run& run, const Cell& cell) {
  constexpr size_t kBuckets = 12;
  std::vector<std::vector<double>> values(kBuckets);
  for_samples(run, cell, [&](int64_t, const Json& line) {
    const std::vector<double> kld = list_of(line, "kld"), newest = list_of(line, "newest_evicted");
    for (size_t i = 1; i < kld.size(); ++i) {  // row 0 comes before any compaction
      const size_t window = (i - 1) / static_cast<size_t>(Future::kWindow);
      if (window >= newest.size() || newest[window] < 0) continue;
      auto distance = static_cast<int64_t>(newest[window]) +
                      static_cast<int64_t>((i - 1) % static_cast<size_t>(Future::kWindow));
      size_t bucket = 0;
      for (; distance >= 32 && bucket + 1 < kBuckets; distance /= 2) ++bucket;
      values[bucket].push_back(kld[i]);
    }
  });
  Json out = Json::array();
  for (size_t b = 0; b < kBuckets; ++b) {
    if (values[b].empty()) continue;
    out.push_back({{"tokens_back", bucket_name(b, kBuckets - 1)},
                   {"n", values[b].size()},
                   {"kld_mean", mean(values[b])}});
  }
  return out;
}

Json mass_by_distance(const Run& run, const Cell& cell) {
  std::vector<double> sum;
  double n = 0;
  for_samples(run, cell, [&](int64_t, const Json& line) {
    const std::vector<double> v = list_of(line, "lost_by_distance");
    sum.resize(std::max(sum.size(), v.size()));
    for (size_t i = 0; i < v.size(); ++i) sum[i] += v[i];
    ++n;
  });
  Json out = Json::array();
  for (size_t b = 0; b < sum.size(); ++b) {
    if (sum[b] > 0)
      out.push_back({{"tokens_back", bucket_name(b, sum.size() - 1)}, {"lost_mass", sum[b] / n}});
  }
  return out;
}

}  // namespace

Units text_units(const Run& run, const Cell& cell) {
  const std::string& task = run.options.task;
  const char* key = task == "kld" ? "kld" : task == "mass" ? "lost" : "nll";
  Units units;
  for_samples(run, cell, [&](int64_t s, const Json& line) {
    const std::vector<double> values = list_of(line, key);
    const size_t block = task == "mass" ? 1 : kBlock;
    for (size_t at = 0; at < values.size(); at += block) {
      const size_t n = std::min(block, values.size() - at);
      units.values.push_back(mean(std::span(values).subspan(at, n)));
      units.weights.push_back(static_cast<double>(n));
      units.samples.push_back(s);
    }
  });
  return units;
}

void add_text_figures(const Run& run, const Cell& cell, Json& row) {
  std::vector<double> kld, nll, error;
  double agree = 0;
  for_samples(run, cell, [&](int64_t, const Json& line) {
    for (const double v : list_of(line, "kld")) kld.push_back(v);
    for (const double v : list_of(line, "nll")) nll.push_back(v);
    for (const double v : list_of(line, "output_error")) error.push_back(v);
    agree += line.value("agree", 0.0);
  });
  if (run.options.task == "mass") {
    row["output_error"] = error.empty() ? Json(nullptr) : Json(mean(error));
    row["lost_by_distance"] = mass_by_distance(run, cell);
  }
  if (run.options.task != "kld") return;
  row["kld_p99"] = kld.empty() ? Json(nullptr) : Json(percentile(kld, 0.99));
  row["kld_max"] = kld.empty() ? Json(nullptr) : Json(*std::max_element(kld.begin(), kld.end()));
  row["top1"] = kld.empty() ? Json(nullptr) : Json(agree / static_cast<double>(kld.size()));
  row["perplexity"] = nll.empty() ? Json(nullptr) : Json(std::exp(mean(nll)));
  row["kld_by_distance"] = kld_by_distance(run, cell);
  // A sample that never compacted says nothing about what compaction loses.
  const bool tested = !cell.full() && row["never_compacted"] == 0 && !kld.empty();
  row["lossless"] = tested ? Json(row["kld_max"] == 0.0) : Json(nullptr);
}

}  // namespace pagefold::eval
