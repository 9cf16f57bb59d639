// The engine: one thread that owns all sequences and the cache. START READING in engine.cpp: step()
// is the story.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "engine/metrics.h"
#include "engine/request.h"
#include "engine/state.h"
#include "kv/registry.h"
#include "model/model.h"
#include "pagefold/options.h"

namespace pagefold {

// Sizes resolved from EngineOptions, the model and the machine.
struct EngineConfig {
  int block_size = 16;
  int max_num_seqs = 64;
  int max_num_batched_tokens = 512;
  int64_t max_model_len = 0;
  uint64_t kv_cache_memory_bytes = 0;  // rounded down to whole blocks
  int max_queued_requests = 1024;
  KvFormat kv_format;
  bool kv_huge_pages = false;
  KvOptions kv;                   // compression of requests that name none
  bool allow_packing_off = true;  // "off" only shows the problem: not for serving
  int64_t min_kv_interval = 1;    // least interval a request may ask for
  PolicyCost most_policy_cost = PolicyCost::quadratic;
  bool prefix_caching = false;
  uint64_t prefix_cache_memory_bytes = 0;  // 0: a quarter of the pool
  double prefix_cache_ttl_s = 300;         // since the last use; 0: for ever
  bool guaranteed_admission = false;       // admit by the peak of a request, not by its prompt
  double session_ttl_s = 300;              // kv.session, since the end of a turn
  uint64_t session_bytes = 0;              // 0: a quarter of the pool
  std::string spill_dir;                   // where paused sequences go; empty: they are recomputed
  uint64_t spill_bytes = 0;                // most of it
  FindCalibration find_calibration;
  std::string calibration_names;
};
// Checks the options against the model (max_model_len, block size, sizes, the default compression)
// and fills defaults. free_memory: bytes free on the machine now.
Result<EngineConfig> resolve_config(const EngineOptions& options, const ModelShape& model,
                                    const KvFormat& kv_format, uint64_t free_memory);
// Only the size of the pool: for a config that was made before the weights took their memory.
Status fit_pool(const EngineOptions& options, const ModelShape& model, uint64_t free_memory,
                EngineConfig& config);

class EngineCore {
 public:
  // Starts the engine thread. The model must outlive the engine.
  static Result<std::unique_ptr<EngineCore>> start(LanguageModel& model,
                                                   const EngineConfig& config);
  ~EngineCore();  // cancels everything and joins

  // Checks the request against the limits (400-type errors), then queues it. kResourceExhausted:
  // the queue is full.
  Result<std::shared_ptr<Generation>> submit(Request request);
  Status check(const Request& request) const;  // the same checks without queueing
  const EngineConfig& config() const;
  // A consistent copy of all counters and gauges.
  EngineMetrics metrics() const;
  // Calls back once, soon, with a picture of sequences and blocks; mostly on the engine thread, so
  // the callback must not block.
  void watch(std::function<void(std::shared_ptr<const EngineState>)> callback);
  // Bytes and tokens the pool can hold.
  int64_t kv_capacity_tokens() const;

 private:
  EngineCore();
  Result<std::shared_ptr<const KvPlan>> resolve(const Request& request) const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefold
