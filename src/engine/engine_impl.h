// The inside of EngineCore, in two files: engine.cpp is the step, engine_cache.cpp what it does to
// the cache.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/batch.h"
#include "engine/compression.h"
#include "engine/config.h"
#include "engine/engine.h"
#include "engine/pausing.h"
#include "engine/prefix_sharing.h"
#include "engine/queue.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sessions.h"
#include "engine/state_watch.h"

namespace pagefold {

struct EngineCore::Impl {
  Impl(LanguageModel& m, const EngineConfig& c, const PoolSize& size, uint64_t block_bytes_in,
       std::unique_ptr<SpillFile> spill);

  void loop();
  void step();
  void take_requests();
  void retire_cancelled();
  void sample(const StepPlan& plan);
  void choose_token(Sequence& s, const float* row);
  void add_prompt_logprobs(Sequence& s, int64_t row_index, const float* row);
  void advance(const StepPlan& plan);
  void compact();
  bool make_room_to_compact(Sequence& s);
  void fill_restored(bool wait);
  void count_compaction(Sequence& s);
  bool drop_span(Sequence& s, const KeepSpan& span);
  bool keep_session(std::unique_ptr<Sequence>& s, FinishReason reason);
  void copy_shared(const StepPlan& plan);
  void retire(std::unique_ptr<Sequence> s, FinishReason reason, std::string error = {});
  void publish_metrics();
  EngineMetrics metrics_now() const;  // any thread
  void emit();
  void give_back();
  void release_memory();
  // Seconds since the last call go to a stage.
  void lap(size_t stage);

  LanguageModel& model;
  const EngineConfig config;
  const CacheShape shape;
  const KvModel kv;
  const PoolSize size;
  const uint64_t block_bytes;
  const size_t vocab;
  const int max_logit_rows;

  BlockPool pool;
  PrefixSharing prefix;
  SessionStore sessions;
  Pausing pausing;
  RequestQueue queue;
  StateWatch state_watch;
  Scheduler scheduler;
  Batch batch;
  Sampler sampler;
  CompactionRunner compaction;
  bool page_bounds = false;         // kept from the first request of quest on
  std::unique_ptr<float[]> logits;  // [max_logit_rows][vocab], pages touched as used

  // What a step leaves for its end. Storage is kept.
  struct Finish {
    FinishReason reason = FinishReason::none;
    int32_t stop_token = -1;
    std::string error;
  };
  std::vector<std::unique_ptr<Sequence>> arrived, leaving;
  std::vector<std::pair<std::shared_ptr<Generation>, GenerationResult>> finished;
  std::vector<std::pair<Sequence*, Finish>> ended;  // of this step's rows
  std::vector<Generation*> changed;
  std::vector<BlockId> freed, taken;  // since the last give_back()
  int steps_since_release = 0;

  EngineMetrics counters;  // the engine thread's own
  Clock::time_point lap_start{};
  mutable std::mutex published_mutex;
  EngineMetrics published;
  std::thread thread;
};

}  // namespace pagefold
