// A summary as a table and as a page.
#include <algorithm>
#include <cmath>

#include "eval/summary.h"
#include "report/report.h"

namespace pagefold::eval {
namespace {

using report::short_number;

std::string cell_text(const Json& row, const std::string& key) {
  if (!row.contains(key) || row[key].is_null()) return "-";
  const Json& v = row[key];
  if (v.is_string()) return v.get<std::string>();
  if (v.is_boolean()) return v.get<bool>() ? "yes" : "no";
  if (v.is_array() && v.size() == 2 && v[0].is_number())
    return short_number(v[0].get<double>()) + " .. " + short_number(v[1].get<double>());
  if (!v.is_number()) return "-";
  return short_number(v.get<double>());
}

struct Column {
  const char* key;
  const char* head;
};

std::vector<Column> columns_of(const std::string& task) {
  std::vector<Column> c = {{"policy", "policy"},          {"budget", "budget"},
                           {"kv_cache_dtype", "KV type"}, {"kv_bytes", "KV bytes"},
                           {"kv_bytes_peak", "peak"},     {"kept_tokens", "kept"},
                           {"compactions", "compactions"}};
  if (task == "perplexity") {
    c.insert(c.end(), {{"perplexity", "perplexity"}, {"ci95", "95 %"}});
  } else if (task == "kld") {
    c.insert(c.end(), {{"kld_mean", "KLD mean"},
                       {"ci95", "95 %"},
                       {"kld_p99", "KLD 99 %"},
                       {"top1", "same top token"},
                       {"perplexity", "perplexity"}});
  } else if (task == "mass") {
    c.insert(c.end(),
             {{"lost_mass", "mass lost"}, {"ci95", "95 %"}, {"output_error", "output error"}});
  } else {
    c.insert(c.end(), {{"score", "right"},
                       {"ci95", "95 %"},
                       {"n", "cases"},
                       {"score_where_full_right", "where full is right"},
                       {"tokens_per_answer", "tokens an answer"}});
  }
  c.push_back({"never_compacted", "never compacted"});
  return c;
}

report::Table table_of(const Json& summary) {
  report::Table t;
  t.text_columns = 3;
  const auto columns = columns_of(summary["task"].get<std::string>());
  for (const Column& c : columns) t.head.emplace_back(c.head);
  for (const Json& row : summary["rows"]) {
    auto& cells = t.rows.emplace_back();
    for (const Column& c : columns) cells.push_back(cell_text(row, c.key));
  }
  return t;
}

std::string series_name(const Json& row, bool many_types) {
  std::string name = row["policy"].get<std::string>();
  if (many_types) name += " " + row["kv_cache_dtype"].get<std::string>();
  return name;
}

bool is_bound(const std::string& policy) {
  return policy == "oracle" || policy == "random" || policy == "streaming" || policy == "full";
}

// One series a policy and type, in the order of the rows.
template <class F>
std::vector<report::Series> series_of(const Json& summary, F points) {
  std::vector<report::Series> out;
  bool many = false;
  for (const Json& row : summary["rows"])
    many |= row["kv_cache_dtype"] != summary["rows"][0]["kv_cache_dtype"];
  for (const Json& row : summary["rows"]) {
    const std::string name = series_name(row, many);
    auto it = std::find_if(out.begin(), out.end(), [&](const auto& s) { return s.name == name; });
    if (it == out.end()) {
      out.push_back({name, {}, true, is_bound(row["policy"].get<std::string>())});
      it = out.end() - 1;
    }
    points(row, *it);
  }
  for (auto& s : out) {
    std::stable_sort(s.points.begin(), s.points.end(),
                     [](const auto& a, const auto& b) { return a.x < b.x; });
  }
  std::erase_if(out, [](const auto& s) { return s.points.empty(); });
  return out;
}

void add_quality(const Json& summary, report::Page& page) {
  const Measure measure = measure_of(summary["task"].get<std::string>());
  report::Plot plot;
  plot.title = "Quality against measured memory";
  plot.x_label = "KV cache, MiB held (measured)";
  plot.y_label = measure.label;
  plot.y_from_zero = summary["task"] != "perplexity";
  plot.series = series_of(summary, [&](const Json& row, report::Series& s) {
    const Json& y = row[measure.key];
    if (!y.is_number()) return;
    report::Point p{row["kv_bytes"].get<double>() / (1 << 20), y.get<double>(), {}, {}};
    if (row["ci95"].is_array())
      p.range = {row["ci95"][0].get<double>(), row["ci95"][1].get<double>()};
    p.label = fmt::format("{} {}: {} at {} bytes", s.name, cell_text(row, "budget"),
                          short_number(p.y), short_number(row["kv_bytes"].get<double>()));
    s.points.push_back(std::move(p));
  });
  page.plot(plot);
}

void add_distances(const Json& summary, report::Page& page) {
  const bool kld = summary["task"] == "kld";
  if (!kld && summary["task"] != "mass") return;
  const char* list = kld ? "kld_by_distance" : "lost_by_distance";
  report::Table t;
  t.text_columns = 3;
  t.head = {"policy", "budget", "KV type"};
  std::vector<std::string> names;
  for (const Json& row : summary["rows"]) {
    for (const Json& b : row[list]) {
      const auto name = b["tokens_back"].get<std::string>();
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return std::stoll(a) < std::stoll(b); });
  t.head.insert(t.head.end(), names.begin(), names.end());
  for (const Json& row : summary["rows"]) {
    if (row[list].empty()) continue;
    auto& cells = t.rows.emplace_back();
    for (const char* key : {"policy", "budget", "kv_cache_dtype"})
      cells.push_back(cell_text(row, key));
    for (const std::string& name : names) {
      std::string text = "-";
      for (const Json& b : row[list]) {
        if (b["tokens_back"] == name) text = cell_text(b, kld ? "kld_mean" : "lost_mass");
      }
      cells.push_back(text);
    }
  }
  if (t.rows.empty()) return;
  page.heading(kld ? "By the distance of the newest evicted token"
                   : "By the distance of what was lost");
  page.paragraph(kld ? "Mean divergence of the rows whose newest evicted token (mean over the "
                       "tables) lay that many tokens before them."
                     : "Share of the future attention that went to evicted tokens that far back.");
  page.table(t);
}

void add_pairs(const Json& summary, report::Page& page) {
  report::Table t;
  t.text_columns = 4;
  t.head = {"policy", "budget", "KV type", "against", "difference",
            "95 %",   "better", "worse",   "equal",   "p"};
  for (const Json& row : summary["rows"]) {
    for (const Json& pair : row["paired"]) {
      auto& cells = t.rows.emplace_back();
      for (const char* key : {"policy", "budget", "kv_cache_dtype"})
        cells.push_back(cell_text(row, key));
      for (const char* key : {"against", "difference", "ci95", "better", "worse", "equal", "p"})
        cells.push_back(cell_text(pair, key));
    }
  }
  if (t.rows.empty()) return;
  page.heading("Paired comparisons");
  page.paragraph(
      "The same stretches of text, or cases, under two caches: mean difference with a bootstrap "
      "interval, and an exact sign test (McNemar's for right and wrong answers). Many comparisons "
      "were made: a single p just below 0.05 proves little.");
  page.table(t);
}

void add_rest(const Json& summary, report::Page& page) {
  if (!summary["left_out"].empty()) {
    report::Table t{{"policy", "budget", "KV type", "why"}, {}, 4};
    for (const Json& row : summary["left_out"]) {
      t.rows.push_back({cell_text(row, "policy"), cell_text(row, "budget"),
                        cell_text(row, "kv_cache_dtype"), cell_text(row, "why")});
    }
    page.heading("Left out");
    page.table(t);
  }
  if (!summary["times"].empty()) {
    report::Table t{{"policy", "budget", "KV type", "seconds", "tokens/s", "answers/s"}, {}, 3};
    for (const Json& row : summary["times"]) {
      auto& cells = t.rows.emplace_back();
      for (const char* key :
           {"policy", "budget", "kv_cache_dtype", "seconds", "tokens_per_s", "answers_per_s"})
        cells.push_back(cell_text(row, key));
    }
    page.heading("Times");
    page.paragraph("These depend on the machine and on what else ran; all other figures do not.");
    page.table(t);
  }
}

}  // namespace

std::string text_table(const Json& summary) {
  const report::Table t = table_of(summary);
  std::vector<size_t> width(t.head.size());
  for (size_t i = 0; i < t.head.size(); ++i) {
    width[i] = t.head[i].size();
    for (const auto& row : t.rows) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  const auto add = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i) {
      out += i < t.text_columns ? fmt::format("{:<{}}  ", row[i], width[i])
                                : fmt::format("{:>{}}  ", row[i], width[i]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  };
  add(t.head);
  for (const auto& row : t.rows) add(row);
  for (const Json& row : summary["left_out"]) {
    out += fmt::format("left out: {} {}: {}\n", cell_text(row, "policy"), cell_text(row, "budget"),
                       cell_text(row, "why"));
  }
  return out;
}

std::string html_page(const Json& summary, const std::string& command) {
  report::Page page("pagefold eval " + summary["task"].get<std::string>());
  page.code(command);
  add_quality(summary, page);
  page.paragraph(
      "Dashed lines are bounds and references: the full cache; oracle, which knows what later "
      "queries will look at; random; and streaming, which keeps the first and the newest tokens. "
      "Bars are 95 % bootstrap intervals. Memory is what the pool of cache blocks had in use.");
  page.table(table_of(summary));
  add_distances(summary, page);
  add_pairs(summary, page);
  add_rest(summary, page);
  page.heading("Settings");
  page.code(summary["settings"].dump(1));
  return page.html();
}

}  // namespace pagefold::eval
