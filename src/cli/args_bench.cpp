// Flags of `pagefold bench`.
#include "cli/args_flags.h"

namespace pagefold {
namespace {

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) out.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

void words(CLI::App& app, const char* name, std::vector<std::string>& out, const char* help) {
  flag(app, name, help, [&out](Text text) -> Status {
    out = split_list(text);
    return out.empty() ? bad_input("the list is empty") : ok_status();
  });
}

void counts(CLI::App& app, const char* name, std::vector<int64_t>& out, int64_t most,
            const char* help) {
  flag(app, name, help, [&out, most](Text text) -> Status {
    out.clear();
    for (const std::string& part : split_list(text)) {
      PF_ASSIGN(const uint64_t value, parse_human_count(part, 1, static_cast<uint64_t>(most)));
      out.push_back(static_cast<int64_t>(value));
    }
    return out.empty() ? bad_input("the list is empty") : ok_status();
  });
}

void add_local(CLI::App& app, bench::LocalOptions& o) {
  // The engine's flags of these names take one value; here two take a list.
  for (const char* name : {"--kv-policy", "--kv-budget", "--kv-cache-dtype"})
    app.remove_option(app.get_option(name));
  app.option_defaults()->group("Steps and answers");
  counts(app, "--contexts", o.contexts, int64_t{1} << 24,
         "tokens cached before a step (default 512,4096)");
  counts(app, "--batches", o.batches, 4096, "sequences of a decode step (default 1,4)");
  words(app, "--kv-cache-dtype", o.kv_types, "types of the cache (default auto)");
  words(app, "--kv-policy", o.policies, "policies of whole answers (default full,triattention)");
  text_flag(app, "--kv-budget", o.budget, "their budget (default 256)");
  integer(app, "--prompt-tokens", o.prompt, 1, int64_t{1} << 24,
          "prompt of whole answers, and rows of a prefill step up to 512 (default 512)");
  flag(app, "-n,--max-tokens", "tokens of whole answers, or with --serve; 0 = no whole answers",
       [&o](Text text) { return read_integer(text, 0, int64_t{1} << 24, o.tokens); });
  integer(app, "--repeat", o.repeat, 1, 1000, "steps timed, whose median counts (default 7)");
  switch_flag(
      app, "roofline", o.roofline,
      "time every kernel by itself too, and print shares of the measured bandwidth and peak");
}

void add_load(CLI::App& app, bench::LoadOptions& o) {
  app.option_defaults()->group("Load on servers");
  app.add_option_function<std::vector<std::string>>(
         "--serve",
         [&o](const std::vector<std::string>& urls) {
           for (const std::string& url : urls) o.urls.push_back(url);
         },
         "[NAME=]http[s]://HOST:PORT of an OpenAI server; may be repeated: all get the same "
         "requests")
      ->take_all()
      ->expected(1)
      ->type_name("");
  flag(app, "--rates", "requests a second, exponential gaps (default 1); 0 = all at once",
       [&o](Text text) -> Status {
         o.rates.clear();
         for (const std::string& part : split_list(text)) {
           PF_ASSIGN(const double rate, parse_real(part));
           if (rate != 0 && !(rate >= 1e-3 && rate <= 1e6))
             return bad_input("{}: must be 0 or lie in 0.001 ... 1e6", part);
           o.rates.push_back(rate);
         }
         return o.rates.empty() ? bad_input("the list is empty") : ok_status();
       });
  integer(app, "--requests", o.requests, 1, 4096, "requests of each rate (default 16)");
  integer(app, "--prompt-words", o.prompt_words, 1, 1 << 20,
          "made-up words of each prompt (default 200)");
  text_flag(app, "--served-model", o.model, "model to ask for; default: the first one listed");
  text_flag(app, "--api-key", o.api_key, "key of the servers");
  real(app, "--timeout", o.timeout_s, 0, 1e6, true, "seconds of a request (default 300)");
  text_flag(app, "--send-kv-policy", o.kv_policy, "policy that each request asks for (pagefold)");
  text_flag(app, "--send-kv-budget", o.kv_budget, "its budget");
  add_seed(app, o.seed, "of the made-up prompts and the gaps");
}

}  // namespace

void add_bench(CLI::App& app, BenchCommand& command) {
  add_engine(app, command.local.engine);
  add_local(app, command.local);
  add_load(app, command.load);
  app.option_defaults()->group("Options");
  text_flag(app, "-o,--output", command.output, "path without suffix: writes .json and .html");
  add_json(app, command.json);
}

}  // namespace pagefold
