// Cache compression as the engine runs it: which plan a request gets, what a step records for it,
// and the compaction itself. The decisions are kv/'s, the bytes are the model's; this is the hand
// between them.
#pragma once

#include <functional>
#include <memory>

#include "engine/engine.h"
#include "engine/sequence.h"
#include "kv/compression.h"
#include "kv/registry.h"
#include "model/model.h"

namespace pagefold {

// What compression knows of a model.
KvModel kv_model(const ModelShape& model, int block_size);

// sizing: before calibrations are registered; the plan serves footprints alone.
// The plan of a request's words on top of the engine's default ones. n_prompt 0: of the defaults
// alone.
Result<std::shared_ptr<const KvPlan>> resolve_kv_plan(const KvOptions& request,
                                                      const EngineConfig& config,
                                                      const KvModel& model, int64_t n_prompt,
                                                      bool sizing = false);

// Most blocks a request ever holds. shared: others may share its prompt's, see peak_footprint.
int64_t peak_blocks(const KvPlan& plan, const KvModel& model, const CacheShape& shape,
                    int64_t n_prompt, int64_t max_tokens, int64_t step_rows, bool shared = false);

// kInvalidArgument with both numbers: the pool can never hold the request.
Status check_footprint(const KvPlan& plan, const KvModel& model, const CacheShape& shape,
                       int64_t n_prompt, int64_t max_tokens, int64_t step_rows, int64_t pool_blocks,
                       uint64_t block_bytes);

// What forward() does for a sequence's policy in a step of `rows` rows; null: nothing.
const SeqSignals* begin_signals(Sequence& s, int64_t rows);
void end_signals(Sequence& s, int64_t rows);

struct CompactionTimes {
  double scored_s = 0, moved_s = 0;
};

// Compacts sequences that are due. One for the engine; buffers are reused.
class CompactionRunner {
 public:
  CompactionRunner(const KvModel& kv, LanguageModel& model, BlockPool& pool)
      : model_(model),
        pool_(pool),
        compactor_(kv, [this](int64_t n, UnitFn fn) { model_.for_each(n, fn); }) {}
  // True: it was due and has been done. Blocks given up are appended to `freed`. commit_taken:
  // called once the blocks of copies are taken, before bytes are moved into them. make_room: called
  // while blocks for copies are missing; false: the compaction cannot be done now.
  bool run(Sequence& s, std::vector<BlockId>& freed, const std::function<void()>& commit_taken,
           const std::function<bool()>& make_room);
  // Drops the tokens at these positions. dropped: as Compactor::plan_without has it. False: there
  // is no room for copies of blocks that others share.
  bool drop(Sequence& s, KeepSpan span, int64_t dropped, std::vector<BlockId>& freed,
            const std::function<void()>& commit_taken);
  const CompactionTimes& times() const { return times_; }

 private:
  LanguageModel& model_;
  BlockPool& pool_;
  Compactor compactor_;
  MovePlan plan_;
  CompactionTimes times_;
};

}  // namespace pagefold
