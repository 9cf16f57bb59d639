#include "engine/metrics.h"

#include <algorithm>
#include <utility>

namespace pagefold {
namespace {

// 1, 2, 5, 10 ... : vLLM goes up to the model's length; a fixed end keeps dashboards comparable.
std::vector<double> one_two_five() {
  std::vector<double> bounds;
  for (double decade = 1; decade <= 100000; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) bounds.push_back(step * decade);
  }
  return bounds;
}

const std::vector<double> kTtft = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                   1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> kInterToken = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                         .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kLatency = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                      30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kIteration = {1,   8,    16,   32,   64,   128,  256,
                                        512, 1024, 2048, 4096, 8192, 16384};

}  // namespace

Histogram::Histogram(std::vector<double> upper_bounds)
    : bounds(std::move(upper_bounds)), counts(bounds.size() + 1, 0) {}

void Histogram::observe(double value) {
  const auto at = std::lower_bound(bounds.begin(), bounds.end(), value);
  ++counts[static_cast<size_t>(at - bounds.begin())];
  sum += value;
  ++n;
}

EngineMetrics::EngineMetrics()
    : ttft_s(kTtft),
      inter_token_s(kInterToken),
      e2e_s(kLatency),
      queue_s(kLatency),
      prefill_s(kLatency),
      decode_s(kLatency),
      request_prompt_tokens(one_two_five()),
      request_generation_tokens(one_two_five()),
      iteration_tokens(kIteration) {}

}  // namespace pagefold
