// Quality of compressed caches: a task is run for every cell of a grid of policies, budgets and
// cache types; what each sample gave is kept line by line, then summed up against the memory that
// the pool really held. docs/quality.md says what each figure means.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pagefold/options.h"

namespace pagefold::eval {

// Tokens of a prompt of needle and passkey.
inline constexpr int64_t kLeastContext = 128, kMostContext = 1 << 20;

// Neutral values (0, empty) stand for the task's own defaults.
struct EvalOptions {
  std::string task;      // a name of task_names()
  EngineOptions engine;  // its kv: words for every cell (interval, recent ...)
  std::vector<std::string> policies, budgets, kv_types;
  std::string data;               // path: text, JSON or JSON lines, as the task reads
  std::string output;             // path without suffix: .jsonl grows, .json and .html at the end
  int64_t samples = 0;            // texts, or cases
  int64_t prompt = 0;             // tokens of each text read before anything is scored
  int64_t tokens = 0;             // scored tokens of each text
  int64_t max_tokens = 0;         // longest answer
  std::vector<int64_t> contexts;  // needle, passkey: lengths of the prompt in tokens
  int64_t needles = 0;            // in one haystack
  int64_t shots = -1;             // qa: worked examples before each question
  int64_t repeats = 0;            // qa: answers a question
  double temperature = -1, top_p = 0;
  uint64_t seed = 0;
  std::string command;  // for the report
  // Called now and then: cells' samples done, of all.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct EvalReport {
  std::string json;  // one object; the same settings give the same bytes but for "times"
  std::string html;
  std::string text;  // a table for a terminal
};

std::vector<std::string> task_names();
// Errors: a wrong option, data that cannot be read, a results file of other settings.
Result<EvalReport> run_eval(const EvalOptions& options);

// "h2o:alloc=adaptive,alpha=0.2,streaming" -> two words: a part that is key=value belongs to the
// policy before it.
std::vector<std::string> split_words(const std::string& list);

}  // namespace pagefold::eval
