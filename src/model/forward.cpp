#include "model/forward.h"

#include <cmath>

#include "base/check.h"

namespace pagefold {

TransformerModel::TransformerModel(std::unique_ptr<Backend> backend, ModelConfig config,
                                   ModelWeights weights)
    : backend_(std::move(backend)),
      config_(std::move(config)),
      weights_(std::move(weights)),
      rope_(rope_frequencies(config_.rope)) {
  config_.shape = model_shape(config_);
}

ModelShape model_shape(const ModelConfig& config) {
  ModelShape shape = config.shape;
  RopeFrequencies rope = rope_frequencies(config.rope);
  shape.inv_freq = std::move(rope.frequency);
  shape.rope_magnitude = rope.magnitude;
  shape.rope_half_layout = config.rope_half_layout;
  return shape;
}

Status TransformerModel::init(const KvShape& kv, const StepLimits& limits) {
  const ModelShape& s = config_.shape;
  PF_TRY(backend_->init_kv(kv));
  PF_CHECK(backend_->block_bytes() == kv.block_bytes());
  PF_TRY(backend_->init_step(limits));
  PF_ASSIGN(hidden_, backend_->make_buffer(s.hidden));
  PF_ASSIGN(qkv_, backend_->make_buffer(int64_t{s.n_heads + 2 * s.n_kv_heads} * s.head_dim));
  PF_ASSIGN(heads_, backend_->make_buffer(int64_t{s.n_heads} * s.head_dim));
  PF_ASSIGN(gate_up_, backend_->make_buffer(2 * config_.ffn));
  return kv.centred_keys ? centre_keys(kv, limits) : ok_status();
}

void TransformerModel::forward(const StepBatch& batch, float* logits) {
  const int rows = static_cast<int>(batch.tokens.size());
  rope_.prepare(batch.positions);
  sinks_ = prepare_sinks(batch);
  backend_->embed(batch.tokens, weights_.embedding, 1.0f, hidden_);
  for (int i = 0; i < config_.shape.n_layers; ++i) layer(i, batch, rows);
  if (batch.logit_rows.empty()) return;
  backend_->logits(batch.logit_rows, hidden_, weights_.final_norm,
                   static_cast<float>(config_.rms_eps), weights_.head, logits);
}

void TransformerModel::score_tables(const KeyScoreQuery& query, const TableView* tables,
                                    ScoredKeys* out) {
  const ModelShape& s = config_.shape;
  const KeyTables keys{.tables = tables,
                       .n_layers = s.n_layers,
                       .n_heads = s.n_heads,
                       .n_kv_heads = s.n_kv_heads,
                       .scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim)),
                       .half_layout = config_.rope_half_layout};
  backend_->score_tables(query, keys, out);
}

bool TransformerModel::prepare_sinks(const StepBatch& batch) {
  bool any = false;
  for (const SeqRows& seq : batch.seqs) {
    if (seq.signals == nullptr || seq.signals->sink_slots == 0 || seq.signals->sink_shift == 0)
      continue;
    if (!any) sink_positions_.assign(batch.positions.size(), 0);
    any = true;
    for (int r = seq.row; r < seq.row + seq.n_rows; ++r) {
      const auto at = static_cast<size_t>(r);
      sink_positions_[at] = batch.positions[at] - seq.signals->sink_shift;
      PF_CHECK(sink_positions_[at] >= 0, "sinks shifted past their row");
    }
  }
  if (any) rope_.prepare_sinks(sink_positions_);
  return any;
}

void TransformerModel::layer(int index, const StepBatch& batch, int rows) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(index)];
  const ModelShape& s = config_.shape;
  const float eps = static_cast<float>(config_.rms_eps);
  const AttentionShape attention{.n_heads = s.n_heads,
                                 .n_kv_heads = s.n_kv_heads,
                                 .head_dim = s.head_dim,
                                 .scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim)),
                                 .window = s.layer_window[static_cast<size_t>(index)]};
  const RopeShape rope{.rot = config_.rope.rot,
                       .half_layout = config_.rope_half_layout,
                       .cos = rope_.cos(),
                       .sin = rope_.sin(),
                       .sink_cos = sinks_ ? rope_.sink_cos() : nullptr,
                       .sink_sin = sinks_ ? rope_.sink_sin() : nullptr};

  backend_->norm_linear(rows, hidden_, w.attention_norm, eps, w.qkv, w.qkv_bias, qkv_);
  backend_->attention(index, batch.seqs, qkv_, attention, rope, w.q_norm, w.k_norm, eps, heads_);
  backend_->linear_add(rows, heads_, w.attention_out, w.out_bias, hidden_);
  backend_->norm_linear(rows, hidden_, w.ffn_norm, eps, w.gate_up, VectorId{}, gate_up_);
  backend_->glu_linear_add(rows, gate_up_, w.down, hidden_);
}

}  // namespace pagefold
