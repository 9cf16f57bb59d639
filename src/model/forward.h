// The forward pass of a decoder-only transformer: read TransformerModel::forward top to bottom.
#pragma once

#include <memory>
#include <vector>

#include "model/config.h"
#include "model/model.h"
#include "model/rope.h"
#include "model/weights.h"

namespace pagefold {

// The shape of a configured model, with what follows from its rotary embedding.
ModelShape model_shape(const ModelConfig& config);

class TransformerModel final : public LanguageModel {
 public:
  TransformerModel(std::unique_ptr<Backend> backend, ModelConfig config, ModelWeights weights);

  const ModelShape& shape() const override { return config_.shape; }
  Status init(const KvShape& kv, const StepLimits& limits) override;
  void forward(const StepBatch& batch, float* logits) override;
  uint64_t block_bytes(const KvShape& kv) const override { return kv.block_bytes(); }
  void blocks_freed(std::span<const BlockId> blocks) override { backend_->blocks_freed(blocks); }
  Status blocks_taken(std::span<const BlockId> blocks) override {
    return backend_->blocks_taken(blocks);
  }
  void copy_blocks(std::span<const BlockCopy> copies) override { backend_->copy_blocks(copies); }
  void save_blocks(std::span<const BlockId> blocks, std::byte* out) override {
    backend_->save_blocks(blocks, out);
  }
  void load_blocks(std::span<const BlockId> blocks, std::span<const int32_t> filled,
                   const std::byte* in) override {
    backend_->load_blocks(blocks, filled, in);
  }
  void for_each(int64_t n, UnitFn fn) override { backend_->for_each(n, fn); }
  void score_tables(const KeyScoreQuery& query, const TableView* tables, ScoredKeys* out) override;
  void move_slots(const MovePlan& plan, const TableView* tables) override {
    backend_->move_slots(plan, tables, config_.shape.n_kv_heads);
  }
  uint64_t release_kv(uint64_t reserve_bytes, uint64_t least_bytes) override {
    return backend_->release_kv(reserve_bytes, least_bytes);
  }
  Status enable_page_bounds() override { return backend_->enable_page_bounds(); }
  uint64_t page_bounds_bytes() const override { return backend_->page_bounds_bytes(); }
  KvMemory kv_memory() const override { return backend_->kv_memory(); }
  uint64_t kv_saturated() const override { return backend_->kv_saturated(); }
  uint64_t kv_resident_bytes() const override { return backend_->kv_resident_bytes(); }
  uint64_t weight_bytes() const override { return backend_->weight_bytes(); }
  const ModelConfig& config() const { return config_; }
  Backend& backend() { return *backend_; }

 private:
  // Angles of the second queries of sequences that re-index their sinks. False: there are none.
  bool prepare_sinks(const StepBatch& batch);
  void layer(int index, const StepBatch& batch, int rows);
  Status centre_keys(const KvShape& kv, const StepLimits& limits);

  std::unique_ptr<Backend> backend_;
  ModelConfig config_;
  ModelWeights weights_;
  RopeTable rope_;
  std::vector<int64_t> sink_positions_;  // [rows] of the step
  bool sinks_ = false;
  BufferId hidden_, qkv_, heads_, gate_up_;
};

}  // namespace pagefold
