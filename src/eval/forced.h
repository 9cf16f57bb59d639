// Teacher forcing: a model reads a known text as if it had generated it, with a cache that is
// observed, compacted and freed exactly as the engine does it for a request. Rows come in stretches
// that end where the plan may compact; a row's numbers do not depend on that.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "api/engine_setup.h"
#include "engine/compression.h"

namespace pagefold::eval {

struct ForcedUsage {
  uint64_t bytes_peak = 0, bytes_end = 0;  // blocks that the pool had in use
  double bytes_mean = 0;                   // over the rows after the prompt
  int64_t compactions = 0;
  double kept_tokens = 0;  // at the end, a table
};

struct ForcedHooks {
  // Rows [first, first + rows), from the prompt's last one on: row r predicts token r + 1.
  // logits: [rows][vocab].
  std::function<void(int64_t first, int64_t rows, const float* logits)> logits;
  // What to record of a step of a sequence that is never compacted; null: nothing.
  std::function<const Observation*(int64_t first, int64_t rows)> observe;
  // A compaction is due: the oracle fills in what it knows.
  std::function<void(SequenceCompression&)> before_compaction;
  // At the prompt's end and every stop_every rows after it, before the next row is computed.
  std::function<void(const Sequence&)> at_stop;
  int64_t stop_every = 0;
};

class ForcedModel {
 public:
  // One sequence of at most `most_tokens` tokens at a time.
  static Result<std::unique_ptr<ForcedModel>> open(const EngineOptions& options,
                                                   int64_t most_tokens);
  // A plan of words, `oracle` and packing `off` included.
  Result<std::shared_ptr<const KvPlan>> plan(const KvOptions& words, int64_t n_prompt) const;
  // All of `tokens`; the first n_prompt are read as a prompt. The last one is not computed.
  Result<ForcedUsage> run(const std::shared_ptr<const KvPlan>& plan,
                          const std::vector<int32_t>& tokens, int64_t n_prompt,
                          const ForcedHooks& hooks);
  // Keys and values of `n` tokens of one table of the last run, which must have kept everything, in
  // a float32 cache: [n][head_dim]. Called within at_stop.
  void read_cache(const Sequence& s, int table, int64_t n, std::vector<float>& keys,
                  std::vector<float>& values);

  const KvModel& kv() const { return kv_; }
  const ModelShape& shape() const { return setup_.model.network->shape(); }
  const LoadedModel& loaded() const { return setup_.model; }

 private:
  ForcedModel(EngineSetup setup, int64_t most_tokens);
  int64_t rows_of_step(const Sequence& s, int64_t end, const ForcedHooks& hooks) const;
  void step(Sequence& s, int64_t rows, const ForcedHooks& hooks);
  void give_back();

  EngineSetup setup_;
  const KvModel kv_;
  const CacheShape shape_;
  uint64_t block_bytes_ = 0;
  BlockPool pool_;
  CompactionRunner runner_;
  std::vector<BlockId> freed_, taken_;
  std::vector<float> logits_;
  std::vector<int64_t> positions_;
  std::vector<int32_t> wanted_;
  bool page_bounds_ = false;
};

}  // namespace pagefold::eval
