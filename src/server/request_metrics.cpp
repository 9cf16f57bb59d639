#include "server/request_metrics.h"

namespace pagefold {
namespace {

const EngineMetrics& buckets() {
  static const EngineMetrics metrics;
  return metrics;
}

}  // namespace

RequestFigures::RequestFigures()
    : n({1, 2, 5, 10, 20, 50, 100}),
      max_tokens(buckets().request_generation_tokens.bounds),
      most_generated(buckets().request_generation_tokens.bounds),
      inference_s(buckets().e2e_s.bounds),
      token_s(buckets().inter_token_s.bounds) {}

void RequestMetrics::asked(double n, double max_tokens) {
  std::lock_guard lock(mutex_);
  figures_.n.observe(n);
  figures_.max_tokens.observe(max_tokens);
}

void RequestMetrics::choice_ended(const GenerationResult& result) {
  std::lock_guard lock(mutex_);
  figures_.inference_s.observe(result.prefill_s + result.decode_s);
  if (result.completion_tokens > 1) {
    figures_.token_s.observe(result.decode_s / static_cast<double>(result.completion_tokens - 1));
  }
}

void RequestMetrics::ended(double most_generated) {
  std::lock_guard lock(mutex_);
  figures_.most_generated.observe(most_generated);
}

RequestFigures RequestMetrics::figures() const {
  std::lock_guard lock(mutex_);
  return figures_;
}

}  // namespace pagefold
