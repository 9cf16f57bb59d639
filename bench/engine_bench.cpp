// Speed of the whole engine on a real model: prompt tokens a second and generated tokens a second.
// engine_bench MODEL [key=value ...]  keys: prompt (512) gen (64) batch (1) repeat (1) threads (0)
// kv (auto) isa (auto), and kv.KEY for the compression of the requests (kv.policy, kv.budget ...).
// With any kv.KEY each repeat runs twice, full cache and compressed, in turn. Prints one JSON
// object a run. Prefill: from the first step to the last first token; decode: from there to the
// end; scoring and moving: their shares of the decode time.
// table=on runs every policy but oracle in its own packing and the other of order and fill, and
// prints a Markdown table of what each costs a step (prompt=2304 gen=512 kv.budget=2048
// unless given).
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "api/engine_setup.h"
#include "base/log.h"
#include "bench/answers.h"
#include "engine/engine.h"
#include "kv/registry.h"
#include "report_status.h"

namespace pagefold {
namespace {

using bench::AnswerTimes;

struct Settings {
  int64_t prompt = 512, gen = 64, batch = 1, repeat = 1;
};

Result<AnswerTimes> run_once(EngineCore& core, const LoadedModel& model, const Settings& s,
                             const KvOptions& kv, uint64_t seed) {
  return bench::time_answers(core, model.network->shape().vocab_size,
                             {s.prompt, s.gen, s.batch, kv, seed});
}

void print(const Settings& s, const AnswerTimes& t, const KvOptions& kv) {
  const auto policy = kv.find("policy");
  std::printf(
      "{\"policy\": \"%s\", \"prompt\": %ld, \"gen\": %ld, \"batch\": %ld, "
      "\"prefill_tokens_per_s\": %.1f, \"decode_tokens_per_s\": %.1f, \"compactions\": %lu, "
      "\"scoring\": %.4f, \"moving\": %.4f}\n",
      policy == kv.end() ? "full" : policy->second.c_str(), s.prompt, s.gen, s.batch,
      static_cast<double>(s.prompt * s.batch) / t.prefill_s,
      s.gen > 1 ? static_cast<double>((s.gen - 1) * s.batch) / t.decode_s : 0.0, t.compactions,
      t.scoring, t.moving);
  std::fflush(stdout);
}

// One row of the table: a decode step in wall and CPU time, the shares of it that the engine itself
// measured, and the CPU time of the prompt against that of a full cache. A cut at the prompt's end
// counts to the prompt.
void print_row(const KvOptions& kv, const Settings& s, const AnswerTimes& t,
               const AnswerTimes& full) {
  const auto of = [&](const char* key, const char* otherwise) {
    return kv.contains(key) ? kv.at(key) : std::string(otherwise);
  };
  const double steps = static_cast<double>(s.gen - 1);
  std::printf("| %s | %s | %s | %lu | %.2f | %.2f | %.2f %% | %.2f %% | %.2f %% | %.2f |\n",
              of("policy", "full").c_str(), of("packing", "").c_str(), of("interval", "").c_str(),
              t.compactions, t.decode_s / steps * 1e3, t.decode_cpu_s / steps * 1e3,
              t.scoring * 100, t.moving * 100, (t.scoring + t.moving) * 100,
              t.prefill_cpu_s / full.prefill_cpu_s);
  std::fflush(stdout);
}

// Every policy as it comes and with the other packing; those that compact at every token also every
// 128 tokens.
std::vector<KvOptions> table_rows(int64_t budget) {
  std::vector<KvOptions> rows;
  const auto add = [&](std::string_view name, const Policy& policy) {
    const PolicyDefaults d = policy.defaults();
    if (d.offline) return;
    KvOptions kv = {{"policy", std::string(name)}, {"budget", std::to_string(budget)}};
    if (!d.evicts) {
      if (name != "full") rows.push_back(kv);
      return;
    }
    if (d.protect_prompt) kv["protect_prompt"] = "off";
    for (const int64_t interval : {d.interval, int64_t{128}}) {
      kv["interval"] = std::to_string(interval);
      for (const char* packing : {"order", "fill"}) {
        kv["packing"] = packing;
        rows.push_back(kv);
      }
      if (d.interval == 128 || d.once || d.drops_half) break;
    }
  };
  for (const Policy* p : all_policies()) add(p->name(), *p);
  for (const Preset& p : all_presets()) add(p.name, *find_policy(p.policy));
  return rows;
}

Status print_table(EngineCore& core, const LoadedModel& model, const Settings& s, int64_t budget) {
  std::printf(
      "| policy | packing | interval | compactions | ms a step | CPU ms a step | scoring | "
      "moving | together | prefill CPU |\n|---|---|---|---|---|---|---|---|---|---|\n");
  PF_ASSIGN(const AnswerTimes full, run_once(core, model, s, {}, 1000));
  print_row({}, s, full, full);
  for (const KvOptions& kv : table_rows(budget)) {
    PF_ASSIGN(const AnswerTimes t, run_once(core, model, s, kv, 1000));
    print_row(kv, s, t, full);
  }
  PF_ASSIGN(const AnswerTimes again, run_once(core, model, s, {}, 1000));
  print_row({{"policy", "full, again"}}, s, again, full);
  return ok_status();
}

Status run(int argc, char** argv) {
  if (argc < 2) return bad_input("usage: engine_bench MODEL [key=value ...]");
  std::map<std::string, std::string> o{{"prompt", "512"}, {"gen", "64"},    {"batch", "1"},
                                       {"repeat", "1"},   {"threads", "0"}, {"kv", "auto"},
                                       {"isa", "auto"},   {"table", "off"}};
  KvOptions kv;
  std::set<std::string> given;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t eq = word.find('=');
    if (eq != std::string::npos && word.starts_with("kv.")) {
      kv[word.substr(3, eq - 3)] = word.substr(eq + 1);
      continue;
    }
    if (eq == std::string::npos || !o.contains(word.substr(0, eq)))
      return bad_input("unknown option '{}'", word);
    o[word.substr(0, eq)] = word.substr(eq + 1);
    given.insert(word.substr(0, eq));
  }
  const bool table = o["table"] == "on";
  if (table && !given.contains("prompt")) o["prompt"] = "2304";
  if (table && !given.contains("gen")) o["gen"] = "512";
  const Settings s{std::stoll(o["prompt"]), std::stoll(o["gen"]), std::stoll(o["batch"]),
                   std::stoll(o["repeat"])};
  log::set_level(log::Level::warn);
  EngineOptions options;
  options.model = argv[1];
  options.threads = std::stoi(o["threads"]);
  options.kv_cache_dtype = o["kv"];
  options.isa = o["isa"];
  options.max_model_len = s.prompt + s.gen + 16;
  options.allow_long_context = true;
  options.max_num_seqs = static_cast<int>(s.batch);
  PF_ASSIGN(const EngineSetup setup, load_for_engine(options));
  const LoadedModel& model = setup.model;
  PF_ASSIGN(const std::unique_ptr<EngineCore> core,
            EngineCore::start(*model.network, setup.config));
  PF_TRY(run_once(*core, model, {std::min<int64_t>(s.prompt, 32), 2, s.batch, 1}, {}, 1)
             .status());  // warm-up
  if (table) {
    const auto budget = kv.find("budget");
    return print_table(*core, model, s, budget == kv.end() ? 2048 : std::stoll(budget->second));
  }
  for (int64_t i = 0; i < s.repeat; ++i) {
    for (const bool compressed : {false, true}) {
      if (compressed && kv.empty()) continue;
      PF_ASSIGN(const AnswerTimes t, run_once(*core, model, s, compressed ? kv : KvOptions{},
                                              1000 + static_cast<uint64_t>(i)));
      print(s, t, compressed ? kv : KvOptions{});
    }
  }
  return ok_status();
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  return pagefold::report_status([&] { return pagefold::run(argc, argv); });
}
