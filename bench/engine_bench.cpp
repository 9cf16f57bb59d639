// Speed of the whole engine on a real model: prompt tokens a second and generated tokens a second.
// engine_bench MODEL [key=value ...]  keys: prompt (512) gen (64) batch (1) repeat (1) threads (0)
// kv (auto) isa (auto) Prints one JSON object a repeat. Prefill: from the first step to the last
// first token; decode: from there to the end.
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "api/loaded_model.h"
#include "base/log.h"
#include "base/random.h"
#include "base/system.h"
#include "engine/engine.h"

namespace pagefold {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Settings {
  int64_t prompt = 512, gen = 64, batch = 1, repeat = 1;
};

struct Times {
  double prefill_s = 0, decode_s = 0;
};

Result<Times> run_once(EngineCore& core, const LoadedModel& model, const Settings& s,
                       uint64_t seed) {
  std::vector<std::shared_ptr<Generation>> all;
  const auto start = Clock::now();
  for (int64_t b = 0; b < s.batch; ++b) {
    Request r;
    r.id = "bench-" + std::to_string(b);
    for (int64_t i = 0; i < s.prompt; ++i) {
      const double u = uniform01(seed + static_cast<uint64_t>(b), static_cast<uint64_t>(i));
      r.tokens.push_back(
          100 +
          static_cast<int32_t>(u * static_cast<double>(model.network->shape().vocab_size - 200)));
    }
    r.sampling.temperature = 0;
    r.sampling.max_tokens = s.gen;
    r.sampling.ignore_eos = true;
    PF_ASSIGN(std::shared_ptr<Generation> g, core.submit(std::move(r)));
    all.push_back(std::move(g));
  }
  Times t;
  std::vector<TokenEvent> events;
  for (auto& g : all) {
    size_t got = 0;
    while (got == 0 && !g->finished()) {
      g->wait();
      events.clear();
      g->poll(events);
      got += events.size();
    }
  }
  t.prefill_s = seconds_since(start);
  for (auto& g : all) {
    while (!g->finished()) {
      g->wait();
      events.clear();
      g->poll(events);
    }
    if (g->result().reason != FinishReason::length)
      return bad_data("a request ended early: {}", g->result().error);
  }
  t.decode_s = seconds_since(start) - t.prefill_s;
  return t;
}

Status run(int argc, char** argv) {
  if (argc < 2) return bad_input("usage: engine_bench MODEL [key=value ...]");
  std::map<std::string, std::string> o{{"prompt", "512"}, {"gen", "64"},    {"batch", "1"},
                                       {"repeat", "1"},   {"threads", "0"}, {"kv", "auto"},
                                       {"isa", "auto"}};
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t eq = word.find('=');
    if (eq == std::string::npos || !o.contains(word.substr(0, eq)))
      return bad_input("unknown option '{}'", word);
    o[word.substr(0, eq)] = word.substr(eq + 1);
  }
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
  PF_ASSIGN(LoadedModel model, load_model(options));
  PF_ASSIGN(const EngineConfig config,
            resolve_config(options, model.network->shape(), model.kv, available_memory()));
  PF_ASSIGN(const std::unique_ptr<EngineCore> core, EngineCore::start(*model.network, config));
  PF_TRY(run_once(*core, model, {std::min<int64_t>(s.prompt, 32), 2, s.batch, 1}, 1)
             .status());  // warm-up
  for (int64_t i = 0; i < s.repeat; ++i) {
    PF_ASSIGN(const Times t, run_once(*core, model, s, 1000 + static_cast<uint64_t>(i)));
    std::printf(
        "{\"prompt\": %ld, \"gen\": %ld, \"batch\": %ld, \"prefill_tokens_per_s\": %.1f, "
        "\"decode_tokens_per_s\": %.1f}\n",
        s.prompt, s.gen, s.batch, static_cast<double>(s.prompt * s.batch) / t.prefill_s,
        s.gen > 1 ? static_cast<double>((s.gen - 1) * s.batch) / t.decode_s : 0.0);
    std::fflush(stdout);
  }
  return ok_status();
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  const pagefold::Status s = pagefold::run(argc, argv);
  if (s.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", pagefold::message_of(s).c_str());
  return 1;
}
