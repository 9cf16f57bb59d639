// How many sequences run at once in the KV memory of N full caches: the real engine, scheduler,
// pool and compactor, counted in blocks; nothing is computed, so the figures are exact and take
// seconds.
//   fit_bench [key=value ...]   prompt (6656) gen (1536): 8,192 tokens at the end
//   full (8): whole sequences that the memory holds; budgets are a tenth of a sequence
//
//   layers (30) kv_heads (3) head_dim (64), and kv.KEY for one policy instead of the usual ones
#include "support/fit.h"

#include <cstdio>
#include <map>
#include <string>

#include "base/log.h"
#include "report_status.h"

namespace pagefold {
namespace {

Status run(int argc, char** argv) {
  std::map<std::string, int64_t> o{{"prompt", 6656}, {"gen", 1536},   {"full", 8},
                                   {"layers", 30},   {"kv_heads", 3}, {"head_dim", 64}};
  KvOptions own;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t eq = word.find('=');
    if (eq != std::string::npos && word.starts_with("kv.")) {
      own[word.substr(3, eq - 3)] = word.substr(eq + 1);
    } else if (eq != std::string::npos && o.contains(word.substr(0, eq))) {
      o[word.substr(0, eq)] = std::stoll(word.substr(eq + 1));
    } else {
      return bad_input("unknown option '{}'", word);
    }
  }
  log::set_level(log::Level::error);
  const auto kv_heads = static_cast<int>(o["kv_heads"]);
  testing::FitCase c{testing::numbers_shape(static_cast<int>(o["layers"]), kv_heads, kv_heads,
                                            static_cast<int>(o["head_dim"]))};
  c.prompt = o["prompt"];
  c.generated = o["gen"];
  c.pool_bytes = testing::full_bytes(c, o["full"]);
  const std::string tenth = std::to_string((c.prompt + c.generated) / 10);
  std::vector<KvOptions> wishes = {
      {{"policy", "full"}},
      {{"policy", "triattention"}, {"budget", tenth}, {"protect_prompt", "off"}},
      {{"policy", "triattention"},
       {"budget", tenth},
       {"protect_prompt", "off"},
       {"prefill_evict", "on"}}};
  if (!own.empty()) wishes = {{{"policy", "full"}}, own};
  std::printf(
      "| %.1f MiB of KV memory, sequences of %ld tokens | at once | ratio |\n|---|---|---|\n",
      static_cast<double>(c.pool_bytes) / (1 << 20), c.prompt + c.generated);
  int64_t full = 0;
  for (const KvOptions& kv : wishes) {
    c.kv = kv;
    PF_ASSIGN(const int64_t n, testing::most_at_once(c, 16 * o["full"]));
    if (full == 0) full = n;
    std::string words;
    for (const auto& [key, value] : kv) words += (words.empty() ? "" : " ") + key + "=" + value;
    std::printf("| %s | %ld | %.1fx |\n", words.c_str(), n,
                static_cast<double>(n) / static_cast<double>(full));
    std::fflush(stdout);
  }
  return ok_status();
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  return pagefold::report_status([&] { return pagefold::run(argc, argv); });
}
