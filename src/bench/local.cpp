// START READING HERE: run_local is the whole sweep.
#include "bench/local.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <memory>
#include <utility>

#include "api/engine_setup.h"
#include "base/log.h"
#include "base/random.h"
#include "bench/bandwidth.h"
#include "bench/cached_step.h"
#include "bench/local_report.h"
#include "bench/timed_backend.h"

namespace pagefold::bench {
namespace {

constexpr size_t kReadBytes = size_t{256} << 20;  // far beyond the caches

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "an unknown processor";
}

struct Timed {
  double seconds = 0;
  StageTimes stages{};
};

// The step whose time is the median, with its own stages: so they add up to it.
Result<LocalRow> time_steps(LoadedModel& model, StageTimes& times, const StepSpec& spec,
                            int repeat) {
  PF_ASSIGN(const std::unique_ptr<CachedStep> step, CachedStep::make(model, spec));
  std::vector<Timed> all;
  for (int i = -2; i < repeat; ++i) {
    times = {};
    const double s = step->run_s();
    if (i >= 0) all.push_back({s, times});  // the first two warm up
  }
  std::sort(all.begin(), all.end(),
            [](const Timed& a, const Timed& b) { return a.seconds < b.seconds; });
  const Timed& mid = all[all.size() / 2];
  LocalRow row;
  row.batch = spec.batch;
  row.context = spec.len;
  row.rows = spec.rows;
  row.ms = mid.seconds * 1e3;
  row.tokens_per_s = static_cast<double>(step->tokens()) / mid.seconds;
  row.stages = mid.stages;
  row.other_s = mid.seconds;
  double bytes = 0;
  for (const StageTime& t : mid.stages) {
    row.other_s -= t.seconds;
    bytes += t.bytes;
  }
  row.gb_per_s = bytes * 1e-9 / mid.seconds;
  return row;
}

Status add_steps(const LocalOptions& o, const std::string& type, LocalMeasurements& out) {
  EngineOptions engine = o.engine;
  engine.kv_cache_dtype = type;
  StageTimes times;
  PF_ASSIGN(LoadedModel model, load_model(engine, {}, [&times](std::unique_ptr<Backend> b) {
              return time_backend(std::move(b), times);
            }));
  out.model = model.name;
  const std::string name(dtype_name(model.kv.k));
  const auto add = [&](const std::string& test, const StepSpec& spec) -> Status {
    if (spec.len + spec.rows > model.network->shape().context_length &&
        !o.engine.allow_long_context) {
      return bad_input("a context of {} is beyond the model's {}; add --allow-long-context",
                       spec.len + spec.rows, model.network->shape().context_length);
    }
    if (o.progress) o.progress(test + " at " + std::to_string(spec.len) + " tokens, " + name);
    PF_ASSIGN(LocalRow row, time_steps(model, times, spec, o.repeat));
    row.test = test;
    row.kv_type = name;
    out.rows.push_back(std::move(row));
    return ok_status();
  };
  for (const int64_t context : o.contexts) {
    for (const int64_t batch : o.batches) {
      PF_TRY(add("decode", {.len = context, .batch = static_cast<int>(batch)}));
    }
  }
  const int rows = static_cast<int>(std::min<int64_t>(o.prompt, 512));
  PF_TRY(add("prefill", {.len = 0, .rows = rows}));
  for (const int64_t context : o.contexts) PF_TRY(add("prefill", {.len = context, .rows = rows}));
  return ok_status();
}

Result<LocalRow> one_answer(EngineCore& core, int64_t vocab, const LocalOptions& o,
                            const KvOptions& kv) {
  Request r;
  r.id = "bench";
  r.kv = kv;
  for (int64_t i = 0; i < o.prompt; ++i) {
    r.tokens.push_back(
        static_cast<int32_t>(uniform01(1, static_cast<uint64_t>(i)) * static_cast<double>(vocab)));
  }
  r.sampling.temperature = 0;
  r.sampling.max_tokens = o.tokens;
  r.sampling.ignore_eos = true;
  PF_ASSIGN(const std::shared_ptr<Generation> g, core.submit(std::move(r)));
  std::vector<TokenEvent> events;
  while (g->poll(events)) g->wait();
  const GenerationResult& result = g->result();
  if (result.reason != FinishReason::length) {
    return bad_data("an answer ended early: {}", result.error);
  }
  LocalRow row;
  row.test = "answer";
  row.policy = result.kv.policy;
  row.context = o.prompt + o.tokens;
  const auto after_first = static_cast<double>(o.tokens - 1);
  row.tokens_per_s = after_first / result.decode_s;
  row.ms = result.decode_s * 1e3 / after_first;
  row.prefill_tokens_per_s = static_cast<double>(o.prompt) / result.prefill_s;
  row.kv_bytes = result.kv.bytes;
  row.kv_peak_bytes = result.kv.peak_bytes;
  row.compactions = result.kv.compactions;
  return row;
}

Status add_answers(const LocalOptions& o, const std::string& type, LocalMeasurements& out) {
  EngineOptions engine = o.engine;
  engine.kv_cache_dtype = type;
  engine.max_num_seqs = 1;
  if (engine.max_model_len == 0) engine.max_model_len = o.prompt + o.tokens;
  PF_ASSIGN(const EngineSetup setup, load_for_engine(engine));
  PF_ASSIGN(const auto core, EngineCore::start(*setup.model.network, setup.config));
  for (const std::string& policy : o.policies) {
    if (o.progress) o.progress("answer with " + policy);
    KvOptions kv = {{"policy", policy}};
    if (policy != "full" && policy != "quest") kv["budget"] = o.budget;
    PF_ASSIGN(LocalRow row, one_answer(*core, setup.model.network->shape().vocab_size, o, kv));
    row.kv_type = dtype_name(setup.config.kv_format.k);
    out.rows.push_back(std::move(row));
  }
  return ok_status();
}

}  // namespace

Result<BenchReport> run_local(const LocalOptions& options) {
  LocalMeasurements m;
  m.machine = processor();
  m.command = options.command;
  m.threads = options.engine.threads > 0 ? options.engine.threads : usable_cores();
  if (options.progress) options.progress("read bandwidth");
  const auto bandwidth = [&] {
    ThreadPool pool(m.threads);
    const Arena arena(kReadBytes);
    // Pages that were never written are one page of zeros, which the caches hold.
    pool.run([&](int t, int n) {
      const Range r = share_of(static_cast<int64_t>(arena.bytes()), t, n);
      std::fill(arena.data() + r.begin, arena.data() + r.end, std::byte{1});
    });
    return read_bandwidth(pool, arena).wall;
  };
  m.read_gb_per_s = bandwidth();
  for (const std::string& type : options.kv_types) PF_TRY(add_steps(options, type, m));
  if (options.tokens > 1) {
    for (const std::string& type : options.kv_types) PF_TRY(add_answers(options, type, m));
  }
  // Before and after: a neighbour that came in between shows in neither alone.
  m.read_gb_per_s = std::max(m.read_gb_per_s, bandwidth());
  return local_report(m, options.roofline);
}

}  // namespace pagefold::bench
