#include "bench/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/json.h"
#include "base/percentile.h"
#include "base/random.h"
#include "bench/bandwidth.h"
#include "bench/stream_client.h"
#include "report/report.h"

namespace pagefold::bench {
namespace {

constexpr int64_t kMostRequests = 4096;  // each has a thread while it runs

struct Target {
  std::string name, model;
  std::string url;  // what paths are put behind
};

struct LoadRow {
  std::string server;
  double rate = 0;
  int64_t requests = 0, failed = 0;
  double seconds = 0;  // from the first request to the last end
  std::vector<double> ttft, gaps, e2e;
  int64_t prompt_tokens = 0, completion_tokens = 0;
  uint64_t kv_peak_bytes = 0;  // mean of a request
  bool has_kv = false;
  std::string first_error;

  double tokens_per_s() const { return static_cast<double>(completion_tokens) / seconds; }
  double requests_per_s() const { return static_cast<double>(requests - failed) / seconds; }
};

std::string made_up_prompt(uint64_t seed, int64_t request, int64_t words) {
  static constexpr std::array<std::string_view, 24> kWords = {
      "the",   "sea",  "ship",  "light", "keeper", "wind",  "stone", "house",
      "night", "rope", "water", "road",  "letter", "child", "bread", "winter",
      "and",   "of",   "went",  "saw",   "to",     "told",  "in",    "old"};
  std::string out = fmt::format("Story {}:", request);
  for (int64_t i = 0; i < words; ++i) {
    const double u = uniform01(seed + static_cast<uint64_t>(request), static_cast<uint64_t>(i));
    out += ' ';
    out += kWords[static_cast<size_t>(u * kWords.size())];
  }
  return out;
}

std::string body_of(const Target& target, const LoadOptions& o, int64_t request) {
  Json body = {{"model", target.model},
               {"prompt", made_up_prompt(o.seed, request, o.prompt_words)},
               {"max_tokens", o.tokens},
               {"temperature", 0},
               {"ignore_eos", true},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (!o.kv_policy.empty()) {
    body["kv"] = {{"policy", o.kv_policy}};
    if (!o.kv_budget.empty()) body["kv"]["budget"] = o.kv_budget;
  }
  return dump_json(body);
}

Result<Target> find_target(const std::string& word, const LoadOptions& o) {
  Target t;
  const size_t eq = word.find('=');
  const size_t scheme = word.find("://");
  const bool named = eq != std::string::npos && eq < scheme;
  t.name = named ? word.substr(0, eq) : word;
  PF_ASSIGN(t.url, server_base(named ? word.substr(eq + 1) : word));
  t.model = o.model;
  PF_ASSIGN(const std::string models, fetch(t.url + "/v1/models", o.api_key, o.timeout_s));
  if (!t.model.empty()) return t;
  const auto json = parse_json(models);
  if (json.ok() && json->is_object() && json->contains("data") && (*json)["data"].is_array() &&
      !(*json)["data"].empty() && (*json)["data"][0].is_object() &&
      (*json)["data"][0].contains("id") && (*json)["data"][0]["id"].is_string()) {
    t.model = (*json)["data"][0]["id"].get<std::string>();
    return t;
  }
  return bad_data("{}: /v1/models lists no model; name one with --model", t.url);
}

void add_answer(const StreamAnswer& a, LoadRow& row) {
  if (!a.piece_s.empty()) row.ttft.push_back(a.piece_s.front());
  for (size_t i = 1; i < a.piece_s.size(); ++i) {
    row.gaps.push_back(a.piece_s[i] - a.piece_s[i - 1]);
  }
  row.e2e.push_back(a.end_s);
  row.prompt_tokens += a.prompt_tokens;
  // A server that does not count: an event is a token, more or less.
  row.completion_tokens +=
      a.completion_tokens > 0 ? a.completion_tokens : static_cast<int64_t>(a.piece_s.size());
  row.has_kv = row.has_kv || a.kv_peak_bytes > 0;
  row.kv_peak_bytes += static_cast<uint64_t>(a.kv_peak_bytes);
}

LoadRow drive(const Target& target, const LoadOptions& o, double rate) {
  LoadRow row;
  row.server = target.name;
  row.rate = rate;
  row.requests = o.requests;
  std::mutex mutex;
  std::vector<std::thread> threads;
  const double start = seconds();
  double due = start;
  for (int64_t i = 0; i < o.requests; ++i) {
    if (rate > 0 && i > 0) {
      const double u = uniform01(o.seed ^ 0x5bd1e995, static_cast<uint64_t>(i));
      due += -std::log(1 - u) / rate;
    }
    const double wait = due - seconds();
    if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    const auto take = [&](const Result<StreamAnswer>& answer) {
      std::lock_guard lock(mutex);
      if (answer.ok()) return add_answer(*answer, row);
      ++row.failed;
      if (row.first_error.empty()) row.first_error = message_of(answer.status());
    };
    try {
      threads.emplace_back([&, take, i] {
        take(stream_completion(target.url + "/v1/completions", body_of(target, o, i), o.api_key,
                               o.timeout_s));
      });
    } catch (const std::system_error& e) {
      take(io_error("no thread for a request: {}", e.what()));
    }
  }
  for (std::thread& t : threads) t.join();
  row.seconds = seconds() - start;
  const int64_t answered = row.requests - row.failed;
  if (answered > 0) row.kv_peak_bytes /= static_cast<uint64_t>(answered);
  return row;
}

// Milliseconds of a percentile; 0 of none, when every request failed.
double ms_at(const std::vector<double>& seconds, double p) {
  return seconds.empty() ? 0 : 1e3 * percentile(seconds, p);
}

Json spread(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return {{"mean", v.empty() ? 0 : 1e3 * sum / static_cast<double>(v.size())},
          {"p50", ms_at(v, 0.5)},
          {"p90", ms_at(v, 0.9)},
          {"p99", ms_at(v, 0.99)}};
}

Json row_json(const LoadRow& r) {
  return {{"server", r.server},
          {"rate", r.rate},
          {"requests", r.requests},
          {"failed", r.failed},
          {"first_error", r.first_error.empty() ? Json(nullptr) : Json(r.first_error)},
          {"seconds", r.seconds},
          {"prompt_tokens", r.prompt_tokens},
          {"completion_tokens", r.completion_tokens},
          {"output_tokens_per_s", r.tokens_per_s()},
          {"requests_per_s", r.requests_per_s()},
          {"ttft_ms", spread(r.ttft)},
          {"inter_token_ms", spread(r.gaps)},
          {"e2e_ms", spread(r.e2e)},
          {"kv_peak_bytes", r.has_kv ? Json(r.kv_peak_bytes) : Json(nullptr)}};
}

std::string html(const LoadOptions& o, const std::vector<LoadRow>& rows) {
  report::Page page("pagefold bench --serve");
  page.paragraph(
      fmt::format("Every server gets the same {} requests at each rate: prompts of {} made-up "
                  "words, answers of "
                  "{} tokens, greedy. A rate of 0 sends all at once.",
                  o.requests, o.prompt_words, o.tokens));
  if (!o.command.empty()) page.code(o.command);
  std::map<std::string, std::array<report::Series, 3>> series;
  report::Table table;
  table.head = {"server",   "rate, 1/s", "failed",  "tokens/s",  "TTFT p50",
                "TTFT p90", "gap p50",   "gap p99", "whole p50", "KV, MiB"};
  for (const LoadRow& r : rows) {
    table.rows.push_back(
        {r.server, fmt::format("{:g}", r.rate), std::to_string(r.failed),
         fmt::format("{:.1f}", r.tokens_per_s()), fmt::format("{:.0f}", ms_at(r.ttft, 0.5)),
         fmt::format("{:.0f}", ms_at(r.ttft, 0.9)), fmt::format("{:.1f}", ms_at(r.gaps, 0.5)),
         fmt::format("{:.1f}", ms_at(r.gaps, 0.99)), fmt::format("{:.0f}", ms_at(r.e2e, 0.5)),
         r.has_kv ? fmt::format("{:.2f}", static_cast<double>(r.kv_peak_bytes) / (1 << 20)) : ""});
    const double y[3] = {ms_at(r.ttft, 0.5), ms_at(r.gaps, 0.5), r.tokens_per_s()};
    for (size_t i = 0; i < 3; ++i) {
      series[r.server][i].name = r.server;
      series[r.server][i].points.push_back({.x = r.rate, .y = y[i]});
    }
  }
  const std::array<std::pair<const char*, const char*>, 3> plots = {
      {{"Time to the first token", "ms, median"},
       {"Between two tokens", "ms, median"},
       {"Throughput", "generated tokens a second"}}};
  for (size_t i = 0; i < plots.size(); ++i) {
    report::Plot plot{
        .title = plots[i].first, .x_label = "requests a second", .y_label = plots[i].second};
    plot.y_from_zero = true;
    for (auto& [name, three] : series) plot.series.push_back(three[i]);
    page.plot(plot);
  }
  page.table(table);
  page.paragraph(
      "Milliseconds: TTFT until the first token, gap between two tokens, whole of an answer. KV: "
      "the most that a request held, where the server says so.");
  for (const LoadRow& r : rows) {
    if (r.failed == 0) continue;
    page.paragraph(fmt::format("{} at {:g} a second: {} failed, the first of them: {}", r.server,
                               r.rate, r.failed, r.first_error));
  }
  return page.html();
}

std::string text(const std::vector<LoadRow>& rows) {
  std::string out =
      fmt::format("{:<24} {:>6} {:>6} {:>9} {:>10} {:>10} {:>9} {:>9} {:>11}\n", "server", "rate",
                  "failed", "tokens/s", "ttft p50", "ttft p90", "gap p50", "gap p99", "KV, MiB");
  for (const LoadRow& r : rows) {
    out += fmt::format(
        "{:<24} {:>6g} {:>6} {:>9.1f} {:>7.0f} ms {:>7.0f} ms {:>6.1f} ms {:>6.1f} ms {:>11}\n",
        r.server, r.rate, r.failed, r.tokens_per_s(), ms_at(r.ttft, 0.5), ms_at(r.ttft, 0.9),
        ms_at(r.gaps, 0.5), ms_at(r.gaps, 0.99),
        r.has_kv ? fmt::format("{:.2f}", static_cast<double>(r.kv_peak_bytes) / (1 << 20)) : "-");
    if (!r.first_error.empty()) out += "    first error: " + r.first_error + "\n";
  }
  return out;
}

}  // namespace

Result<BenchReport> run_load(const LoadOptions& o) {
  if (o.requests < 1 || o.requests > kMostRequests) {
    return bad_input("requests: must lie in 1 ... {}", kMostRequests);
  }
  std::vector<Target> targets;
  for (const std::string& url : o.urls) {
    PF_ASSIGN(Target t, find_target(url, o));
    for (const Target& other : targets) {
      if (other.name == t.name) {
        return bad_input("--serve: two servers are called '{}'; name them: a=URL, b=URL", t.name);
      }
    }
    targets.push_back(std::move(t));
  }
  std::vector<LoadRow> rows;
  for (const Target& target : targets) {
    // One request that does not count: whatever a server does at its first.
    const auto warm = stream_completion(target.url + "/v1/completions", body_of(target, o, -1),
                                        o.api_key, o.timeout_s);
    if (!warm.ok()) return with_context(warm.status(), target.name);
    for (const double rate : o.rates) {
      if (o.progress) o.progress(fmt::format("{} at {:g} requests a second", target.name, rate));
      rows.push_back(drive(target, o, rate));
    }
  }
  Json list = Json::array();
  for (const LoadRow& r : rows) list.push_back(row_json(r));
  BenchReport out;
  out.json = dump_json({{"command", o.command},
                        {"prompt_words", o.prompt_words},
                        {"tokens", o.tokens},
                        {"rows", std::move(list)}});
  out.text = text(rows);
  out.html = html(o, rows);
  return out;
}

}  // namespace pagefold::bench
