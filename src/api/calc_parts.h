// The parts of calculate(): where a model's layers come from, what the cache of this engine holds,
// and what fits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calc/kv_bytes.h"
#include "calc/layers.h"
#include "kv/plan.h"
#include "kv/trace.h"
#include "pagefold/calc.h"

namespace pagefold {

struct CalcModelSource {
  calc::Model model;
  std::optional<uint64_t> weight_bytes;  // exact: of the tensors of a file
  std::string weight_format;             // of that file
  std::optional<DType> kv_dtype;         // of the checkpoint's own recipe for its cache
};
// From request.model, config_json or shape.
Result<CalcModelSource> calc_model(const CalcRequest& request);

// Tables of one shape: blocks of `slot_bytes` times the block size.
struct CalcPool {
  KvModel kv;
  uint64_t slot_bytes = 0;
};
// The caches of a model as this engine lays them out: layers of one shape share a pool.
std::vector<CalcPool> calc_pools(const std::vector<calc::LayerGroup>& groups,
                                 const calc::CacheTypes& types, int block_size);

// So many sequences of one length.
struct CalcBatch {
  int64_t tokens = 0, count = 0;
};
struct CalcHeld {
  uint64_t allocated = 0, steady = 0, peak = 0;
  uint64_t reserved = 0;    // what admission counts for them
  int64_t compactions = 0;  // of the first batch
  bool exact = true;
};
struct CalcWorkload {
  const std::vector<CalcPool>& pools;
  const KvOptions& kv;
  int64_t prompt_tokens = 0, shared_prefix = 0, step_rows = 512;
  TraceSteps& steps;  // for all sequences; once they are used up, figures are bounds
};
// What this engine holds for these sequences; every one is at its peak when `peak` is. Errors: the
// words of `kv`, sizes beyond 2^63.
Result<CalcHeld> calc_held(const CalcWorkload& work, std::span<const CalcBatch> batches);
// What an engine refuses that has no query statistics of the model, where the policy can use them
// and leaves it open whether there are any. Ok: nothing.
Status calc_without_statistics(const CalcWorkload& work);

}  // namespace pagefold
