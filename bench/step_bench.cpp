// Time of one decode step at a given depth, without computing the prompt first: the cache holds
// zeros, which cost what any other values cost.
//
//   step_bench MODEL SPEC [SPEC ...] [repeat=20] [serve=on]
//   SPEC = key=value,key=value ...  len (tokens a sequence, 8192) batch (1) rows (1, of each
//          sequence) kv (auto) kvv (auto) group (auto) threads (0) run (32) huge (off: the cache in
//          pages of 2 MiB) model (another than MODEL)
//
// The specs take turns (A B A B ...); prints the median step in milliseconds of each, tokens a
// second, bytes of the cache read a second, and the ratio to the first. Blocks lie as the engine
// hands them out while it reads a prompt in chunks of 512 tokens: `run` (32) blocks of each table
// in turn; run=1 is what a long answer leaves.
//
//   step_bench bandwidth    only what memory gives, in GB/s
//
// serve=on: instead, each line "INDEX STEPS" of standard input runs that many steps of a spec and
// answers with their seconds in all, for scripts that alternate with other programs.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "api/loaded_model.h"
#include "base/log.h"
#include "bench/bandwidth.h"
#include "bench/cached_step.h"
#include "report_status.h"

namespace pagefold {
namespace {

using Words = std::map<std::string, std::string>;

Result<Words> parse_spec(const std::string& text) {
  Words words{{"len", "8192"},   {"batch", "1"}, {"rows", "1"},    {"kv", "auto"},  {"kvv", "auto"},
              {"group", "auto"}, {"run", "32"},  {"threads", "0"}, {"huge", "off"}, {"model", ""}};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const size_t eq = word.find('=');
    if (eq == std::string::npos || !words.contains(word.substr(0, eq)))
      return bad_input("unknown word '{}' in '{}'", word, text);
    words[word.substr(0, eq)] = word.substr(eq + 1);
    at = end + 1;
  }
  return words;
}

struct Contender {
  LoadedModel model;
  std::unique_ptr<bench::CachedStep> step;
};

Result<std::unique_ptr<Contender>> make(const std::string& model, const Words& words) {
  auto c = std::make_unique<Contender>();
  EngineOptions options;
  options.model = words.at("model").empty() ? model : words.at("model");
  options.kv_cache_dtype = words.at("kv");
  options.kv_cache_dtype_v = words.at("kvv");
  const std::string& group = words.at("group");
  options.kv_cache_group = group == "auto" ? kAutoKvGroup : std::stoi(group);
  options.threads = std::stoi(words.at("threads"));
  PF_ASSIGN(c->model, load_model(options));
  const bench::StepSpec spec{.len = std::stoll(words.at("len")),
                             .batch = std::stoi(words.at("batch")),
                             .rows = std::stoi(words.at("rows")),
                             .run = std::max(1, std::stoi(words.at("run"))),
                             .huge_pages = words.at("huge") == "on"};
  PF_ASSIGN(c->step, bench::CachedStep::make(c->model, spec));
  return c;
}

using Contenders = std::vector<std::unique_ptr<Contender>>;

Status serve(const Contenders& benches) {
  for (const auto& b : benches) b->step->run_s();  // warm
  std::printf("ready\n");
  std::fflush(stdout);
  size_t index = 0;
  for (int steps = 0; std::cin >> index >> steps;) {
    if (index >= benches.size() || steps < 1) return bad_input("no spec {}", index);
    double seconds = 0;
    for (int i = 0; i < steps; ++i) seconds += benches[index]->step->run_s();
    std::printf("%.9f\n", seconds);
    std::fflush(stdout);
  }
  return ok_status();
}

Status compare(const Contenders& benches, const std::vector<std::string>& names, int repeat) {
  std::vector<std::vector<double>> ms(benches.size());
  for (int i = -2; i < repeat; ++i) {
    for (size_t b = 0; b < benches.size(); ++b) {
      const double t = benches[b]->step->run_s() * 1e3;
      if (i >= 0) ms[b].push_back(t);  // the first two warm up
    }
  }
  const double first = bench::median(ms[0]) / static_cast<double>(benches[0]->step->tokens());
  for (size_t b = 0; b < benches.size(); ++b) {
    const double m = bench::median(ms[b]);
    const double tokens = static_cast<double>(benches[b]->step->tokens());
    std::printf("%-44s %8.3f ms  %8.1f tokens/s  %6.1f GB/s of cache  x %.2f\n", names[b].c_str(),
                m, tokens / m * 1e3, benches[b]->step->cache_bytes() / m * 1e-6,
                first / (m / tokens));
  }
  return ok_status();
}

// GB/s that all threads read from memory that the caches cannot hold.
Status print_bandwidth() {
  ThreadPool pool(usable_cores());
  const bench::Arena arena(size_t{512} << 20, bench::ArenaPages::huge);
  pool.run([&](int t, int n) {
    const Range r = share_of(static_cast<int64_t>(arena.bytes()), t, n);
    std::fill(arena.data() + r.begin, arena.data() + r.end, std::byte{1});
  });
  std::printf("%.1f\n", bench::read_bandwidth(pool, arena).wall);
  return ok_status();
}

Status run(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "bandwidth") return print_bandwidth();
  if (argc < 3) return bad_input("usage: step_bench MODEL SPEC [SPEC ...] [repeat=20] [serve=on]");
  log::set_level(log::Level::error);
  int repeat = 20;
  bool serving = false;
  std::vector<std::string> names;
  Contenders benches;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("repeat=")) {
      repeat = std::max(1, std::stoi(word.substr(7)));
      continue;
    }
    if (word == "serve=on") {
      serving = true;
      continue;
    }
    PF_ASSIGN(const Words words, parse_spec(word));
    PF_ASSIGN(std::unique_ptr<Contender> b, make(argv[1], words));
    names.push_back(word);
    benches.push_back(std::move(b));
  }
  return serving ? serve(benches) : compare(benches, names, repeat);
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  return pagefold::report_status([&] { return pagefold::run(argc, argv); });
}
