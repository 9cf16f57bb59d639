// The way of a run: settings and a grid, the lines that are still missing, the summary.
#include "eval/eval.h"

#include <algorithm>

#include "base/file.h"
#include "base/integer_range.h"
#include "base/kv_format.h"
#include "base/log.h"
#include "eval/run.h"
#include "eval/settings.h"
#include "eval/summary.h"
#include "kv/word_check.h"

namespace pagefold::eval {
namespace {

constexpr size_t kMostDataBytes = size_t{256} << 20;

Status check(const EvalOptions& o) {
  const auto names = task_names();
  if (std::find(names.begin(), names.end(), o.task) == names.end()) {
    std::string list;
    for (const auto& n : names) list += (list.empty() ? "" : ", ") + n;
    return bad_input("eval: '{}' is no mode; the modes are: {}", o.task, list);
  }
  if (is_text_task(o.task) && (o.prompt < 1 || o.tokens < 1 || o.prompt + o.tokens > 1 << 20))
    return bad_input("eval: a text of {} + {} tokens cannot be scored", o.prompt, o.tokens);
  if (o.samples < 1) return bad_input("eval: --samples must be at least 1");
  if (o.task == "qa" && o.data.empty())
    return bad_input("eval qa: --data FILE is needed, JSON lines of \"question\" and \"answer\"");
  for (const int64_t c : o.contexts) {
    if (c < kLeastContext || c > kMostContext)
      return bad_input("eval: --contexts: {}: must be {}", c,
                       integer_range(kLeastContext, kMostContext));
  }
  if (is_text_task(o.task)) return ok_status();
  if (o.repeats > 1 && o.temperature < 1e-4)
    return bad_input("eval: --repeats {}: at --temperature {} every answer is the same", o.repeats,
                     o.temperature);
  for (const std::string& p : o.policies) {
    if (p.starts_with("oracle"))
      return bad_input(
          "eval {}: oracle must know what later queries look at, which only a known text tells: "
          "perplexity, kld and mass have it",
          o.task);
  }
  return ok_status();
}

// Names, keys and budgets that no model would take. What a model's shape or a budget leaves no room
// for shows later: such cells are left out. No grid of a typing error is measured without it.
Status check_words(const EvalOptions& o) {
  KvLimits limits;
  limits.allow_off = limits.allow_offline = true;
  const auto check = [&](const Cell& cell, const KvOptions& common, std::string_view named) {
    const Status s = check_kv_words(cell.words(common), limits, o.engine.block_size);
    return s.ok() ? s : with_context(s, named);
  };
  for (const std::string& p : o.policies) PF_TRY(check({p, "100%", ""}, o.engine.kv, p));
  for (const std::string& budget : o.budgets)
    PF_TRY(check({"random", budget, ""}, {{"sinks", "0"}, {"recent", "0"}}, "--kv-budget"));
  return ok_status();
}

// The cases of a file; none where they are made, or for a text.
Result<std::vector<Case>> cases_of(const EvalOptions& o, const std::string& data) {
  Result<std::vector<Case>> cases = std::vector<Case>();
  if (o.task == "qa") cases = read_qa_cases(data, o.samples, o.shots);
  if (o.task == "state_query" && o.data.empty()) cases = state_cases(o.seed, o.samples);
  if (o.task == "state_query" && !o.data.empty()) cases = read_state_cases(data, o.samples);
  return cases.ok() || o.data.empty() ? std::move(cases) : with_context(cases.status(), o.data);
}

// Small enough for minutes on two cores; the options that a task does not have stay neutral.
void fill_answer_defaults(EvalOptions& o) {
  const auto fill = [](int64_t& v, int64_t value) { v = v == 0 ? value : v; };
  const bool qa = o.task == "qa", state = o.task == "state_query";
  const bool hay = !qa && !state;
  fill(o.samples, qa ? 8 : state ? 4 : 12);
  fill(o.max_tokens, qa                   ? 256
                     : state              ? 512
                     : o.task == "needle" ? 24 * std::max<int64_t>(1, o.needles)
                                          : 24);
  fill(o.repeats, 1);
  if (hay && o.contexts.empty()) o.contexts = {256, 512};
  if (o.task == "needle") fill(o.needles, 1);
  if (qa && o.shots < 0) o.shots = 3;
  // One answer is the likeliest one; several must differ.
  if (o.temperature < 0) o.temperature = o.repeats > 1 ? 0.6 : 0;
  if (o.top_p <= 0) o.top_p = o.repeats > 1 ? 0.95 : 1;
}

EvalOptions with_defaults(EvalOptions o) {
  const bool text = is_text_task(o.task);
  const auto fill = [](int64_t& v, int64_t value) { v = v == 0 ? value : v; };
  if (!text) fill_answer_defaults(o);
  if (text) {
    fill(o.samples, 4);
    fill(o.prompt, 128);
    fill(o.tokens, 384);
  }
  if (o.policies.empty()) {
    o.policies = {"snapkv-d", "h2o", "triattention", "streaming", "random"};
    if (text) o.policies.insert(o.policies.begin(), "oracle");
  }
  if (o.budgets.empty()) o.budgets = {"25%", "50%"};
  // Policies are compared on what the full model computes; types are a question of their own.
  if (o.kv_types.empty()) o.kv_types = {text ? "float32" : "auto"};
  return o;
}

Status write_outputs(const EvalOptions& o, const EvalReport& report) {
  if (o.output.empty()) return ok_status();
  PF_TRY(write_file_atomic(o.output + ".json", report.json + "\n"));
  return write_file_atomic(o.output + ".html", report.html);
}

}  // namespace

std::vector<std::string> task_names() {
  return {"perplexity", "kld", "mass", "needle", "passkey", "state_query", "qa"};
}

EngineOptions engine_of(const EvalOptions& options, const std::string& kv_type) {
  EngineOptions e = options.engine;
  e.kv = {};
  e.kv_cache_dtype = kv_type;
  const auto scaled = [](const std::string& word) {
    const auto type = parse_kv_dtype(word);
    return word == "auto" || (type.ok() && dtype_has_scales(*type));
  };
  const std::string& v = e.kv_cache_dtype_v;
  if (!scaled(kv_type) && (v == "auto" || !scaled(v))) e.kv_cache_group = kAutoKvGroup;
  return e;
}

EngineOptions reference_engine_of(const EvalOptions& options) {
  EngineOptions e = engine_of(options, "float32");
  e.kv_cache_dtype_v = "auto";
  e.kv_cache_group = kAutoKvGroup;
  return e;
}

std::string kv_type_name(const EvalOptions& options, const std::string& kv_type) {
  const EngineOptions e = engine_of(options, kv_type);
  std::string name = kv_type;
  if (e.kv_cache_dtype_v != "auto") name = fmt::format("k {}, v {}", kv_type, e.kv_cache_dtype_v);
  if (e.kv_cache_group == 0) name += ", one scale a head";
  if (e.kv_cache_group > 0) name += fmt::format(", groups of {}", e.kv_cache_group);
  return name;
}

bool Run::missing(const Cell& cell) const {
  for (int64_t s = 0; s < samples; ++s) {
    if (results.find(cell, s) == nullptr) return true;
  }
  return false;
}

Status Run::keep(const Cell& cell, int64_t sample, Json values) {
  PF_TRY(results.add(cell, sample, std::move(values)));
  ++done;
  const auto total = static_cast<int64_t>(cells.size()) * samples;
  if (options.progress) options.progress(done, total);
  if (!missing(cell)) log::info("eval: {} at {} is done", cell.name(), cell.kv_type);
  return ok_status();
}

Status Run::leave_out(const Cell& cell, const Status& why) {
  std::erase_if(cells, [&](const Cell& c) { return c.key() == cell.key(); });
  left_out.emplace_back(cell, message_of(why));
  const bool other = std::any_of(cells.begin(), cells.end(),
                                 [&](const Cell& c) { return c.policy == cell.policy; });
  if (!other) return with_context(why, cell.name());
  log::warn("eval: {} is left out: {}", cell.name(), message_of(why));
  return ok_status();
}

namespace {

Result<EvalReport> evaluate(const EvalOptions& given) {
  const EvalOptions o = with_defaults(given);
  PF_TRY(check(o));
  std::string data;
  if (!o.data.empty()) {
    PF_ASSIGN(data, read_file(o.data, kMostDataBytes));
  } else if (is_text_task(o.task)) {
    log::warn(
        "eval: no --data; a text of made-up sentences is used, which says little about real text");
    data = filler(o.seed, (o.samples * (o.prompt + o.tokens)) / 6 + 64);
  }
  PF_TRY(check_words(o));
  PF_ASSIGN(std::vector<Case> cases, cases_of(o, data));
  PF_ASSIGN(const Json calibrations, look_into_model(o));
  const Json settings = settings_of(o, data, calibrations);
  PF_ASSIGN(Results results, Results::open(o.output.empty() ? "" : o.output + ".jsonl", settings));
  Run run{o, make_grid(o.policies, o.budgets, o.kv_types), results, o.samples, {}, 0};
  for (const Cell& cell : run.cells) {
    for (int64_t s = 0; s < run.samples; ++s) run.done += results.find(cell, s) != nullptr ? 1 : 0;
  }
  PF_TRY(is_text_task(o.task) ? run_text_task(run, {o.prompt, o.tokens}, data)
                              : run_answer_task(run, std::move(cases)));
  const Json all = summary(run, settings);
  EvalReport report{dump_json(all), html_page(all, o.command), text_table(all)};
  PF_TRY(write_outputs(o, report));
  return report;
}

}  // namespace

Result<EvalReport> run_eval(const EvalOptions& options) {
  try {
    return evaluate(options);
  } catch (const Json::exception&) {  // a line that was changed by hand
    return bad_data("{}.jsonl: a line does not hold what eval writes; give another --output",
                    options.output);
  }
}

}  // namespace pagefold::eval
