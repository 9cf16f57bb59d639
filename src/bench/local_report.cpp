#include "bench/local_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "report/report.h"

namespace pagefold::bench {
namespace {

double share(const LocalRow& r, const LocalMeasurements& m) {
  return m.read_gb_per_s > 0 ? r.gb_per_s / m.read_gb_per_s : 0;
}

Json stages_json(const LocalRow& r, const LocalMeasurements& m) {
  Json out = Json::array();
  for (size_t i = 0; i < kStages; ++i) {
    const StageTime& t = r.stages[i];
    const double gb = t.seconds > 0 ? t.bytes * 1e-9 / t.seconds : 0;
    out.push_back({{"stage", stage_name(i)},
                   {"ms", t.seconds * 1e3},
                   {"bytes", t.bytes},
                   {"gb_per_s", gb},
                   {"share_of_bandwidth", m.read_gb_per_s > 0 ? gb / m.read_gb_per_s : 0}});
  }
  out.push_back({{"stage", "other"}, {"ms", r.other_s * 1e3}});
  return out;
}

Json row_json(const LocalRow& r, const LocalMeasurements& m) {
  Json j = {{"test", r.test},
            {"policy", r.policy},
            {"kv_cache_dtype", r.kv_type},
            {"batch", r.batch},
            {"context", r.context},
            {"rows", r.rows},
            {"tokens_per_s", r.tokens_per_s},
            {"ms", r.ms}};
  if (r.test == "answer") {
    j["prefill_tokens_per_s"] = r.prefill_tokens_per_s;
    j["kv_bytes"] = r.kv_bytes;
    j["kv_peak_bytes"] = r.kv_peak_bytes;
    j["compactions"] = r.compactions;
    j["gb_per_s"] = nullptr;
    j["share_of_bandwidth"] = nullptr;
  } else {
    j["gb_per_s"] = r.gb_per_s;
    j["share_of_bandwidth"] = share(r, m);
    j["stages"] = stages_json(r, m);
  }
  return j;
}

std::string row_text(const LocalRow& r, const LocalMeasurements& m) {
  std::string out = fmt::format("{:<8} {:<14} {:<9} {:>5} {:>8} {:>10.3f} {:>10.1f}", r.test,
                                r.policy, r.kv_type, r.batch, r.context, r.ms, r.tokens_per_s);
  if (r.test == "answer") {
    out += fmt::format("   prefill {:.0f}/s, cache {:.1f} MiB, at most {:.1f} MiB",
                       r.prefill_tokens_per_s, static_cast<double>(r.kv_bytes) / (1 << 20),
                       static_cast<double>(r.kv_peak_bytes) / (1 << 20));
  } else {
    out += fmt::format(" {:>8.1f} {:>7.0f} %", r.gb_per_s, 100 * share(r, m));
  }
  return out + "\n";
}

std::string stages_text(const LocalRow& r, const LocalMeasurements& m) {
  std::string out;
  const double step = r.ms * 1e-3;
  const auto line = [&](std::string_view name, double seconds, double bytes) {
    out += fmt::format("    {:<16} {:>9.3f} ms {:>5.1f} %", name, seconds * 1e3,
                       step > 0 ? 100 * seconds / step : 0);
    if (bytes > 0 && seconds > 0) {
      const double gb = bytes * 1e-9 / seconds;
      out += fmt::format("  {:>7.1f} GB/s {:>5.0f} % of the bandwidth", gb,
                         100 * gb / m.read_gb_per_s);
    }
    out += '\n';
  };
  for (size_t i = 0; i < kStages; ++i) line(stage_name(i), r.stages[i].seconds, r.stages[i].bytes);
  line("other", r.other_s, 0);
  return out;
}

double of(double part, double whole) { return whole > 0 ? part / whole : 0; }

Json kernels_json(const LocalMeasurements& m) {
  Json rows = Json::array();
  for (const KernelRow& r : m.kernels.rows) {
    rows.push_back(
        {{"kernel", r.kernel},
         {"type", r.type},
         {"rows", r.rows},
         {"context", r.context},
         {"ms", r.ms},
         {"bytes", r.bytes},
         {"ops", r.ops},
         {"gb_per_s", r.gb_per_s()},
         {"gops", r.gops()},
         {"share_of_bandwidth", r.cached ? Json() : Json(of(r.gb_per_s(), m.read_gb_per_s))},
         {"share_of_peak", r.peak_gops > 0 ? Json(of(r.gops(), r.peak_gops)) : Json()}});
  }
  const Peaks& p = m.kernels.peaks;
  return {
      {"isa", m.kernels.isa},
      {"peak_gops", {{"float32", p.f32.wall}, {"bfloat16", p.bf16.wall}, {"int8", p.int8.wall}}},
      {"rows", std::move(rows)}};
}

// The cells of a kernel's line; empty where a figure says nothing.
std::vector<std::string> kernel_cells(const KernelRow& r, const LocalMeasurements& m) {
  return {r.kernel,
          r.type,
          std::to_string(r.rows),
          r.context > 0 ? std::to_string(r.context) : "",
          fmt::format("{:.3f}", r.ms),
          fmt::format("{:.1f}", r.bytes / (1 << 20)),
          fmt::format("{:.1f}", r.gb_per_s()),
          r.cached ? "" : fmt::format("{:.0f} %", 100 * of(r.gb_per_s(), m.read_gb_per_s)),
          fmt::format("{:.1f}", r.gops()),
          r.peak_gops > 0 ? fmt::format("{:.0f} %", 100 * of(r.gops(), r.peak_gops)) : ""};
}
const std::vector<std::string> kKernelHead = {"kernel", "type",       "rows", "context",
                                              "ms",     "MiB",        "GB/s", "of the memory",
                                              "Gop/s",  "of the peak"};

std::string kernels_text(const LocalMeasurements& m) {
  const Peaks& p = m.kernels.peaks;
  std::string out = fmt::format(
      "\nkernels ({}): memory is read at {:.1f} GB/s; at most {:.0f} Gop/s float32, {:.0f} "
      "bfloat16, "
      "{:.0f} int8 (a multiply-add is two)\n",
      m.kernels.isa, m.read_gb_per_s, p.f32.wall, p.bf16.wall, p.int8.wall);
  const auto line = [&](const std::vector<std::string>& c) {
    out += fmt::format("{:<19} {:<30} {:>5} {:>8} {:>9} {:>7} {:>7} {:>13} {:>8} {:>11}\n", c[0],
                       c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9]);
  };
  line(kKernelHead);
  for (const KernelRow& r : m.kernels.rows) line(kernel_cells(r, m));
  return out + "Kernels without a share of the memory work on rows that lie in the caches.\n";
}

void kernels_html(const LocalMeasurements& m, report::Page& page) {
  if (m.kernels.rows.empty()) return;
  const Peaks& p = m.kernels.peaks;
  page.heading("Every kernel by itself");
  page.paragraph(
      fmt::format("{} kernels on the model's shapes, over weights and caches beyond the "
                  "processor's own. Memory "
                  "is read at {:.1f} GB/s; the processor does at most {:.0f} Gop/s in float32, "
                  "{:.0f} in bfloat16, "
                  "{:.0f} in int8, a multiply-add being two.",
                  m.kernels.isa, m.read_gb_per_s, p.f32.wall, p.bf16.wall, p.int8.wall));
  report::Table table;
  table.head = kKernelHead;
  table.text_columns = 2;
  for (const KernelRow& r : m.kernels.rows) table.rows.push_back(kernel_cells(r, m));
  page.table(table);
}

std::string html(const LocalMeasurements& m) {
  report::Page page("pagefold bench");
  page.paragraph(fmt::format("{} on {}, {} threads; memory is read at {:.1f} GB/s.", m.model,
                             m.machine, m.threads, m.read_gb_per_s));
  if (!m.command.empty()) page.code(m.command);
  report::Table table;
  table.head = {"test", "policy",   "cache", "batch",          "context",
                "ms",   "tokens/s", "GB/s",  "% of bandwidth", "cache at most, MiB"};
  table.text_columns = 3;
  std::map<std::string, report::Series> decode;
  for (const LocalRow& r : m.rows) {
    const bool answer = r.test == "answer";
    table.rows.push_back(
        {r.test, r.policy, r.kv_type, std::to_string(r.batch), std::to_string(r.context),
         fmt::format("{:.3f}", r.ms), fmt::format("{:.1f}", r.tokens_per_s),
         answer ? "" : fmt::format("{:.1f}", r.gb_per_s),
         answer ? "" : fmt::format("{:.0f}", 100 * share(r, m)),
         answer ? fmt::format("{:.1f}", static_cast<double>(r.kv_peak_bytes) / (1 << 20)) : ""});
    if (r.test != "decode") continue;
    report::Series& s = decode[fmt::format("{}, batch {}", r.kv_type, r.batch)];
    s.name = fmt::format("{}, batch {}", r.kv_type, r.batch);
    s.points.push_back({.x = static_cast<double>(r.context), .y = r.tokens_per_s});
  }
  report::Plot plot{.title = "Decode", .x_label = "tokens cached", .y_label = "tokens a second"};
  for (auto& [name, s] : decode) plot.series.push_back(std::move(s));
  plot.y_from_zero = true;
  if (!plot.series.empty()) page.plot(plot);
  page.table(table);
  page.heading("Where a step's time goes");
  report::Table stages;
  stages.head = {"step"};
  for (size_t i = 0; i < kStages; ++i) stages.head.emplace_back(stage_name(i));
  stages.head.emplace_back("other");
  stages.head.emplace_back("ms in all");
  for (const LocalRow& r : m.rows) {
    if (r.test == "answer") continue;
    std::vector<std::string> cells = {
        fmt::format("{}, {}, batch {}, context {}", r.test, r.kv_type, r.batch, r.context)};
    for (const StageTime& t : r.stages) cells.push_back(fmt::format("{:.3f}", t.seconds * 1e3));
    cells.push_back(fmt::format("{:.3f}", r.other_s * 1e3));
    cells.push_back(fmt::format("{:.3f}", r.ms));
    stages.rows.push_back(std::move(cells));
  }
  page.table(stages);
  kernels_html(m, page);
  return page.html();
}

}  // namespace

BenchReport local_report(const LocalMeasurements& m, bool roofline) {
  BenchReport out;
  Json rows = Json::array();
  for (const LocalRow& r : m.rows) rows.push_back(row_json(r, m));
  Json json = {
      {"machine",
       {{"description", m.machine}, {"threads", m.threads}, {"read_gb_per_s", m.read_gb_per_s}}},
      {"model", m.model},
      {"command", m.command},
      {"rows", std::move(rows)}};
  if (!m.kernels.rows.empty()) json["kernels"] = kernels_json(m);
  out.json = dump_json(json);
  out.text = fmt::format("{}, {}, {} threads, memory is read at {:.1f} GB/s\n\n", m.model,
                         m.machine, m.threads, m.read_gb_per_s);
  out.text += fmt::format("{:<8} {:<14} {:<9} {:>5} {:>8} {:>10} {:>10} {:>8} {:>9}\n", "test",
                          "policy", "cache", "batch", "context", "ms", "tokens/s", "GB/s", "of it");
  for (const LocalRow& r : m.rows) {
    out.text += row_text(r, m);
    if (roofline && r.test != "answer") out.text += stages_text(r, m);
  }
  if (!m.kernels.rows.empty()) out.text += kernels_text(m);
  out.html = html(m);
  return out;
}

}  // namespace pagefold::bench
