// START READING HERE: run_local is the whole sweep.
#include "bench/local.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <memory>
#include <utility>

#include "api/engine_setup.h"
#include "base/log.h"
#include "base/system.h"
#include "bench/answers.h"
#include "bench/bandwidth.h"
#include "bench/cached_step.h"
#include "bench/local_report.h"
#include "bench/timed_backend.h"
#include "kv/word_check.h"
#include "pagefold/calc.h"

namespace pagefold::bench {
namespace {

constexpr size_t kReadBytes = size_t{256} << 20;  // far beyond the caches
constexpr int64_t kPromptRows = 512;              // most of a step

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

// The kernels on the shapes of a model whose matrices are `matrices`, deep in the longest context.
KernelOptions kernel_options(const LocalOptions& o, const ModelShape& s, int threads,
                             const std::vector<MatrixDims>& matrices) {
  KernelOptions k;
  k.n_heads = s.n_heads;
  k.n_kv_heads = s.n_kv_heads;
  k.head_dim = s.head_dim;
  k.hidden = static_cast<int>(s.hidden);
  for (const MatrixDims& dims : matrices) {
    if (dims.first == s.vocab_size) continue;  // embeddings, output head
    k.matrices.push_back(dims);
    k.ffn = std::max(k.ffn, dims.second);
  }
  k.threads = threads;
  k.isa = o.engine.isa;
  k.context = *std::max_element(o.contexts.begin(), o.contexts.end());
  k.rows = {1};
  const auto batch = *std::max_element(o.batches.begin(), o.batches.end());
  for (const int64_t rows : {batch, std::min(o.prompt, kPromptRows)}) {
    if (rows > k.rows.back()) k.rows.push_back(static_cast<int>(rows));
  }
  k.repeat = o.repeat;
  return k;
}

Status add_steps(const LocalOptions& o, const std::string& type, LocalMeasurements& out) {
  EngineOptions engine = o.engine;
  engine.kv_cache_dtype = type;
  StageTimes times;
  std::vector<MatrixDims> matrices;
  PF_ASSIGN(LoadedModel model, load_model(engine, {}, [&](std::unique_ptr<Backend> b) {
              return time_backend(std::move(b), times, matrices);
            }));
  out.model = model.name;
  if (o.roofline && out.kernels.rows.empty()) {
    if (o.progress) o.progress("kernels");
    PF_ASSIGN(out.kernels,
              measure_kernels(kernel_options(o, model.network->shape(), out.threads, matrices)));
  }
  const std::string name(dtype_name(model.kv.k));
  const auto add = [&](const std::string& test, StepSpec spec) -> Status {
    spec.huge_pages = o.engine.kv_huge_pages;
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
  const int rows = static_cast<int>(std::min(o.prompt, kPromptRows));
  PF_TRY(add("prefill", {.len = 0, .rows = rows}));
  for (const int64_t context : o.contexts) PF_TRY(add("prefill", {.len = context, .rows = rows}));
  return ok_status();
}

Result<LocalRow> one_answer(EngineCore& core, int64_t vocab, const LocalOptions& o,
                            const KvOptions& kv) {
  PF_ASSIGN(const AnswerTimes times, time_answers(core, vocab, {o.prompt, o.tokens, 1, kv}));
  const GenerationResult& result = times.first;
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

KvOptions words_of(const LocalOptions& o, const std::string& policy) {
  KvOptions kv = {{"policy", policy}};
  if (policy != "full" && policy != "quest") kv["budget"] = o.budget;
  return kv;
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
    PF_ASSIGN(LocalRow row,
              one_answer(*core, setup.model.network->shape().vocab_size, o, words_of(o, policy)));
    row.kv_type = dtype_name(setup.config.kv_format.k);
    out.rows.push_back(std::move(row));
  }
  return ok_status();
}

// What is wrong shows before minutes of measuring, not after.
Status check_options(const LocalOptions& o) {
  for (const std::string& type : o.kv_types) {
    if (type != "auto") PF_TRY(parse_kv_dtype(type).status());
  }
  for (const std::string& policy : o.policies) {
    if (o.tokens > 1) PF_TRY(check_kv_words(words_of(o, policy), {}, o.engine.block_size));
  }
  const int64_t context = *std::max_element(o.contexts.begin(), o.contexts.end());
  const int64_t step = context + std::min(o.prompt, kPromptRows);
  const int64_t longest = std::max(step, o.tokens > 1 ? o.prompt + o.tokens : 0);
  for (const std::string& type : o.kv_types) {
    CalcRequest request;
    request.model = o.engine.model;
    request.tokens = context + 1;
    request.sequences = *std::max_element(o.batches.begin(), o.batches.end());
    request.kv_cache_dtype = type;
    request.dtype = o.engine.dtype;
    const auto model = calculate(request);  // what it does not know, loading judges
    if (!model.ok()) return ok_status();
    if (longest > model->context && model->context > 0 && !o.engine.allow_long_context) {
      return bad_input("{} tokens are beyond the model's {}; lower {}, or add --allow-long-context",
                       longest, model->context,
                       longest == step ? "--contexts" : "--prompt-tokens or --max-tokens");
    }
    if (model->kv.allocated_bytes > available_memory()) {
      return bad_input(
          "{} sequences of {} tokens are {} bytes of cache, and {} are free; lower "
          "--batches or --contexts",
          request.sequences, context, model->kv.allocated_bytes, available_memory());
    }
  }
  return ok_status();
}

}  // namespace

Result<BenchReport> run_local(const LocalOptions& options) {
  PF_TRY(check_options(options));
  LocalMeasurements m;
  m.machine = processor();
  m.command = options.command;
  m.threads = options.engine.threads > 0 ? options.engine.threads : usable_cores();
  if (options.progress) options.progress("read bandwidth");
  const auto bandwidth = [&] {
    ThreadPool pool(m.threads);
    const Arena arena(kReadBytes, ArenaPages::huge);
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
