// A language model that passes every call on and calls a function before each step.
#pragma once

#include <functional>
#include <utility>

#include "engine/engine.h"

namespace pagefold {

class HookedModel final : public LanguageModel {
 public:
  // before_step: gets the number of steps done so far, on the engine's thread.
  HookedModel(LanguageModel& model, std::function<void(int64_t)> before_step)
      : model_(model), before_step_(std::move(before_step)) {}

  const ModelShape& shape() const override { return model_.shape(); }
  Status init(const KvShape& kv, const StepLimits& limits) override {
    return model_.init(kv, limits);
  }
  uint64_t block_bytes(const KvShape& kv) const override { return model_.block_bytes(kv); }
  void forward(const StepBatch& batch, float* logits) override {
    before_step_(steps_++);
    model_.forward(batch, logits);
  }
  void blocks_freed(std::span<const BlockId> b) override { model_.blocks_freed(b); }
  Status blocks_taken(std::span<const BlockId> b) override { return model_.blocks_taken(b); }
  void copy_blocks(std::span<const BlockCopy> c) override { model_.copy_blocks(c); }
  void score_tables(const KeyScoreQuery& q, const TableView* t, ScoredKeys* out) override {
    model_.score_tables(q, t, out);
  }
  void move_slots(const MovePlan& p, const TableView* t) override { model_.move_slots(p, t); }
  Status enable_page_bounds() override { return model_.enable_page_bounds(); }
  uint64_t release_kv(uint64_t reserve, uint64_t least) override {
    return model_.release_kv(reserve, least);
  }
  KvMemory kv_memory() const override { return model_.kv_memory(); }
  uint64_t weight_bytes() const override { return model_.weight_bytes(); }
  uint64_t kv_resident_bytes() const override { return model_.kv_resident_bytes(); }

 private:
  LanguageModel& model_;
  std::function<void(int64_t)> before_step_;
  int64_t steps_ = 0;
};

}  // namespace pagefold
