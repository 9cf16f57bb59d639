// A benchmark's long answer: options from the command line, an engine whose model calls a hook
// before each step, one request of that length.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/loaded_model.h"
#include "base/log.h"
#include "base/system.h"
#include "base/threads.h"
#include "engine/engine.h"
#include "hooked_model.h"
#include "report_status.h"

namespace pagefold {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline uint64_t resident_bytes() {
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  if (f == nullptr) return 0;
  unsigned long size = 0, resident = 0;
  const int n = std::fscanf(f, "%lu %lu", &size, &resident);
  std::fclose(f);
  return n == 2 ? resident * 4096 : 0;
}

struct LongOptions {
  EngineOptions engine;
  KvOptions kv;
  int64_t tokens = 32000, window = 1000, young = 4000;
  int threads() const { return engine.threads > 0 ? engine.threads : usable_cores(); }
};

inline Result<LongOptions> parse_long_options(int argc, char** argv) {
  if (argc < 2) return bad_input("usage: {} MODEL [key=value ...]", argv[0]);
  LongOptions o;
  o.engine.model = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t eq = std::min(word.find('='), word.size() - 1);
    const std::string key = word.substr(0, eq), value = word.substr(eq + 1);
    if (key.starts_with("kv."))
      o.kv[key.substr(3)] = value;
    else if (key == "tokens")
      o.tokens = std::stoll(value);
    else if (key == "window")
      o.window = std::max<int64_t>(1, std::stoll(value));
    else if (key == "young")
      o.young = std::stoll(value);
    else if (key == "kv")
      o.engine.kv_cache_dtype = value;
    else if (key == "threads")
      o.engine.threads = std::stoi(value);
    else
      return bad_input("unknown option '{}'", word);
  }
  o.engine.max_model_len = o.tokens + 64;
  o.engine.allow_long_context = true;
  o.engine.max_num_seqs = 1;
  log::set_level(log::Level::error);
  return o;
}

class LongAnswer {
 public:
  static Result<std::unique_ptr<LongAnswer>> start(const LongOptions& o, int64_t tokens,
                                                   std::function<void(int64_t)> before_step) {
    auto a = std::make_unique<LongAnswer>();
    PF_ASSIGN(a->model_, load_model(o.engine));
    a->hooked_ = std::make_unique<HookedModel>(*a->model_.network, std::move(before_step));
    PF_ASSIGN(const EngineConfig config,
              resolve_config(o.engine, a->hooked_->shape(), a->model_.kv, available_memory()));
    PF_ASSIGN(a->core_, EngineCore::start(*a->hooked_, config));
    Request r;
    r.id = "long";
    r.kv = o.kv;
    r.tokens = {1, 28, 339, 12};
    r.sampling.temperature = 0;
    r.sampling.max_tokens = tokens;
    r.sampling.ignore_eos = true;
    PF_ASSIGN(a->generation_, a->core_->submit(std::move(r)));
    return a;
  }

  EngineMetrics metrics() const { return core_->metrics(); }
  Status wait() {
    std::vector<TokenEvent> events;
    while (!generation_->finished()) {
      generation_->wait();
      events.clear();
      generation_->poll(events);
    }
    if (generation_->result().reason != FinishReason::length)
      return bad_data("the answer ended early: {}", generation_->result().error);
    return ok_status();
  }

 private:
  LoadedModel model_;
  std::unique_ptr<HookedModel> hooked_;
  std::unique_ptr<EngineCore> core_;
  std::shared_ptr<Generation> generation_;
};

}  // namespace pagefold
