// `pagefold bench --serve URL`: the same stream of requests against one or more OpenAI servers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/local.h"

namespace pagefold::bench {

struct LoadOptions {
  std::vector<std::string> urls;    // [NAME=]http://HOST:PORT, one after the other
  std::vector<double> rates = {1};  // requests a second, exponential gaps; 0: all at once
  int64_t requests = 16;            // of each rate
  int64_t prompt_words = 200;       // made-up English words: about as many tokens
  int64_t tokens = 64;              // of each answer, without an end before
  std::string model;                // empty: the first that the server lists
  std::string api_key;
  std::string kv_policy, kv_budget;  // pagefold servers: sent with each request
  double timeout_s = 300;            // of a request
  uint64_t seed = 1;
  std::string command;
  std::function<void(const std::string&)> progress;
};

// kUnavailable: a server cannot be reached. Requests that fail are counted, not fatal.
Result<BenchReport> run_load(const LoadOptions& options);

}  // namespace pagefold::bench
