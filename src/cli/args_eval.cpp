// Flags of `pagefold eval`.
#include <fmt/ranges.h>

#include "cli/args_flags.h"

namespace pagefold {
namespace {

void add_lists(CLI::App& app, eval::EvalOptions& o) {
  // The engine's flags of these names take one value; here each takes a list.
  for (const char* name : {"--kv-policy", "--kv-budget", "--kv-cache-dtype"})
    app.remove_option(app.get_option(name));
  const auto list = [&](const char* name, std::vector<std::string>& out, const char* help) {
    flag(app, name, help, [&out](Text text) -> Status {
      out = eval::split_words(text);
      return out.empty() ? bad_input("the list is empty") : ok_status();
    });
  };
  app.option_defaults()->group("Grid");
  list("--kv-policy", o.policies,
       "policies, separated by commas (default: a few of each kind); full is always there");
  list("--kv-budget", o.budgets,
       "budgets: slots, or shares of the tokens so far (default 25%,50%)");
  list("--kv-cache-dtype", o.kv_types,
       "types of the cache (default float32 for texts, auto for answers)");
}

void add_task(CLI::App& app, eval::EvalOptions& o) {
  constexpr int64_t kMostCount = int64_t{1} << 20;
  app.option_defaults()->group("Task");
  text_flag(app, "--data", o.data,
            "perplexity, kld, mass: a text; state_query: a JSON file of cases; qa: JSON lines of "
            "question and answer");
  integer(app, "--samples", o.samples, 1, kMostCount, "texts, or cases");
  integer(app, "--prompt-tokens", o.prompt, 1, kMostCount,
          "perplexity, kld, mass: tokens read before any is scored (default 128)");
  integer(app, "--tokens", o.tokens, 1, kMostCount,
          "perplexity, kld, mass: scored tokens of each text (default 384)");
  flag(app, "--contexts", "needle, passkey: tokens of the prompts (default 256,512)",
       [&o](Text text) -> Status {
         o.contexts.clear();
         for (const std::string& part : eval::split_words(text)) {
           PF_ASSIGN(const uint64_t value,
                     parse_human_count(part, eval::kLeastContext, eval::kMostContext));
           o.contexts.push_back(static_cast<int64_t>(value));
         }
         return ok_status();
       });
  integer(app, "--needles", o.needles, 1, 24, "needle: numbers to find in each text (default 1)");
  integer(app, "--shots", o.shots, 0, 100, "qa: worked examples before each question (default 3)");
  integer(app, "--repeats", o.repeats, 1, 1000,
          "answers a case (default 1); several are sampled at temperature 0.6");
  integer(app, "-n,--max-tokens", o.max_tokens, 1, kMostCount, "longest answer");
  real(app, "--temperature,--temp", o.temperature, 0, 1000, false, "of answers; 0 = greedy");
  real(app, "--top-p", o.top_p, 0, 1, true, "of answers");
  add_seed(app, o.seed, "stream of random numbers of made-up cases and sampled answers");
}

}  // namespace

void add_eval(CLI::App& app, EvalCommand& command) {
  eval::EvalOptions& o = command.options;
  std::string names;
  for (const std::string& n : eval::task_names()) names += (names.empty() ? "" : ", ") + n;
  flag(app, "mode", names,
       [&o](Text text) -> Status {
         o.task = text;
         const auto known = eval::task_names();
         if (std::find(known.begin(), known.end(), text) != known.end()) return ok_status();
         return bad_input("'{}': no such mode; the modes are: {}", text, fmt::join(known, ", "));
       })
      ->required()
      ->type_name("MODE");
  add_engine(app, o.engine);
  add_lists(app, o);
  add_task(app, o);
  app.option_defaults()->group("Options");
  text_flag(
      app, "-o,--output", o.output,
      "path without suffix: .jsonl grows line by line and a run that was stopped goes on from "
      "it; .json and .html at the end");
  add_json(app, command.json);
}

}  // namespace pagefold
