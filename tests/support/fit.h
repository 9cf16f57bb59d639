// How many sequences fit in a pool: the real engine, scheduler, pool and compactor over a model
// that has the shape of one and computes nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace pagefold::testing {

// Every token is 0; counts how many sequences take part in a step.
class NumbersModel final : public LanguageModel {
 public:
  explicit NumbersModel(ModelShape shape) : shape_(std::move(shape)) {}
  const ModelShape& shape() const override { return shape_; }
  uint64_t block_bytes(const KvShape& kv) const override {  // bfloat16 keys and values
    return uint64_t{4} * static_cast<uint64_t>(kv.block_size) * static_cast<uint64_t>(kv.head_dim);
  }
  uint64_t weight_bytes() const override { return 0; }
  Status init(const KvShape&, const StepLimits&) override { return ok_status(); }
  void blocks_freed(std::span<const BlockId>) override {}
  void forward(const StepBatch& batch, float* logits) override {
    ready_.wait(false);
    most_at_once_ = std::max(most_at_once_, batch.seqs.size());
    std::fill_n(logits, batch.logit_rows.size() * static_cast<size_t>(shape_.vocab_size), 0.0f);
  }
  // Steps wait until every request is there: they take no time, so early answers would end before.
  void start() {
    ready_ = true;
    ready_.notify_all();
  }
  size_t most_at_once() const { return most_at_once_; }  // once the engine is gone

 private:
  ModelShape shape_;
  size_t most_at_once_ = 0;
  std::atomic<bool> ready_{false};
};

inline ModelShape numbers_shape(int layers, int heads, int kv_heads, int head_dim) {
  ModelShape s;
  s.architecture = "numbers";
  s.n_layers = layers;
  s.n_heads = heads;
  s.n_kv_heads = kv_heads;
  s.head_dim = head_dim;
  s.hidden = 8;
  s.vocab_size = 8;
  s.context_length = 1 << 16;
  s.layer_window.assign(static_cast<size_t>(layers), 0);
  for (int f = 0; f < head_dim / 2; ++f) s.inv_freq.push_back(1.0 / static_cast<double>(1 + f * f));
  return s;
}

struct FitCase {
  ModelShape shape;
  int64_t prompt = 6656, generated = 1536;  // 8,192 tokens at the end
  uint64_t pool_bytes = 0;
  KvOptions kv;
};

// Bytes that `n` sequences of a full cache take at their ends.
inline uint64_t full_bytes(const FitCase& c, int64_t n) {
  const auto slots = static_cast<uint64_t>((c.prompt + c.generated + 15) / 16 * 16);
  const auto tables = static_cast<uint64_t>(c.shape.n_layers * c.shape.n_kv_heads);
  return static_cast<uint64_t>(n) * slots * tables * static_cast<uint64_t>(c.shape.head_dim) * 4;
}

// Whether n requests are all in one step at some time, and none is ever set back for want of
// blocks.
inline Result<bool> run_at_once(const FitCase& c, int64_t n) {
  NumbersModel model(c.shape);
  {
    EngineConfig config;
    config.max_model_len = c.prompt + c.generated + 16;
    config.max_num_seqs = static_cast<int>(n);
    config.kv_cache_memory_bytes = c.pool_bytes;
    PF_ASSIGN(const auto engine, EngineCore::start(model, config));
    std::vector<std::shared_ptr<Generation>> all;
    for (int64_t i = 0; i < n; ++i) {
      Request r;
      r.id = std::to_string(i);
      r.tokens.assign(static_cast<size_t>(c.prompt), 1);
      r.sampling.temperature = 0;
      r.sampling.max_tokens = c.generated;
      r.sampling.ignore_eos = true;
      r.kv = c.kv;
      auto g = engine->submit(std::move(r));
      if (!g.ok()) model.start();  // the engine's thread must end
      PF_TRY(g.status());
      all.push_back(*std::move(g));
    }
    model.start();
    std::vector<TokenEvent> events;
    for (const auto& g : all) {
      for (g->wait(); g->poll(events); g->wait()) {
      }
      if (g->result().reason != FinishReason::length)
        return bad_data("a request ended early: {}", g->result().error);
    }
    if (engine->metrics().preemptions > 0) return false;
  }
  return model.most_at_once() == static_cast<size_t>(n);
}

// The most requests, up to `limit`, that run at once.
inline Result<int64_t> most_at_once(const FitCase& c, int64_t limit) {
  int64_t low = 0, high = limit + 1;  // low fits, high does not
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    PF_ASSIGN(const bool fits, run_at_once(c, middle));
    (fits ? low : high) = middle;
  }
  return low;
}

}  // namespace pagefold::testing
