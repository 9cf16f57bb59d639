// The engine over the real CPU backend and a tiny random model.
#pragma once

#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_test_util.h"
#include "model/model_runner.h"
#include "model/tiny_model.h"

namespace pagefold::testing {

struct TinyHeads {
  int heads = 4, kv_heads = 2, head_dim = 16;
};

// A network that tells a test before every step, on the engine's thread.
class WatchedModel final : public LanguageModel {
 public:
  static Json config_of(TinyHeads h) {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"vocab_size", 160},
            {"hidden_size", 64},
            {"intermediate_size", 96},
            {"num_hidden_layers", 3},
            {"num_attention_heads", h.heads},
            {"num_key_value_heads", h.kv_heads},
            {"head_dim", h.head_dim},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 10000.0},
            {"max_position_embeddings", 8192},
            {"hidden_act", "silu"},
            {"tie_word_embeddings", true}};
  }
  explicit WatchedModel(TinyHeads h = {}, int threads = 1)
      : WatchedModel(config_of(h), tiny_tensors(config_of(h)), threads) {}
  WatchedModel(const Json& config, const std::vector<TinyTensor>& tensors, int threads) {
    write_hf(folder_.path(), config, tensors, TensorType::F32);
    const auto files = open_model(folder_.path());
    NetworkOptions o;
    o.backend = {
        .isa = "auto", .threads = threads, .dtype = DType::f32, .activations = Activations::bits16};
    inner_ = *load_network(files.value(), o);
  }
  const ModelShape& shape() const override { return inner_->shape(); }
  Status init(const KvShape& kv, const StepLimits& limits) override {
    return inner_->init(kv, limits);
  }
  void forward(const StepBatch& batch, float* logits) override {
    if (before_forward) before_forward(batch);
    inner_->forward(batch, logits);
  }
  uint64_t block_bytes(const KvShape& kv) const override { return inner_->block_bytes(kv); }
  void blocks_freed(std::span<const BlockId> b) override { inner_->blocks_freed(b); }
  Status blocks_taken(std::span<const BlockId> b) override { return inner_->blocks_taken(b); }
  void copy_blocks(std::span<const BlockCopy> c) override { inner_->copy_blocks(c); }
  void save_blocks(std::span<const BlockId> b, std::byte* out) override {
    inner_->save_blocks(b, out);
  }
  void load_blocks(std::span<const BlockId> b, std::span<const int32_t> filled,
                   const std::byte* in) override {
    inner_->load_blocks(b, filled, in);
  }
  void for_each(int64_t n, UnitFn fn) override { inner_->for_each(n, fn); }
  void score_tables(const KeyScoreQuery& q, const TableView* t, ScoredKeys* out) override {
    inner_->score_tables(q, t, out);
  }
  void move_slots(const MovePlan& p, const TableView* t) override { inner_->move_slots(p, t); }
  Status enable_page_bounds() override { return inner_->enable_page_bounds(); }
  uint64_t page_bounds_bytes() const override { return inner_->page_bounds_bytes(); }
  uint64_t release_kv(uint64_t reserve, uint64_t least) override {
    return inner_->release_kv(reserve, least);
  }
  KvMemory kv_memory() const override { return inner_->kv_memory(); }
  uint64_t weight_bytes() const override { return inner_->weight_bytes(); }
  uint64_t kv_resident_bytes() const override { return inner_->kv_resident_bytes(); }

  std::function<void(const StepBatch&)> before_forward;  // set before the engine starts

 private:
  TempFolder folder_;
  std::unique_ptr<TransformerModel> inner_;
};

inline EngineConfig tiny_config(const ModelShape& shape, int max_seqs, uint64_t blocks = 40000,
                                int64_t max_model_len = 2048) {
  EngineConfig c;
  c.max_model_len = max_model_len;
  c.max_num_seqs = max_seqs;
  c.max_num_batched_tokens = 64;
  c.kv_format = DType::f32;
  c.kv_cache_memory_bytes = blocks * 2 * 4 * 16 * static_cast<uint64_t>(shape.head_dim);
  return c;
}

// Every policy and preset but oracle, with settings that make short sequences compact often.
inline std::vector<KvOptions> every_policy() {
  const KvOptions often = {{"budget", "48"}, {"interval", "8"}, {"recent", "8"}};
  const auto with = [&](const char* policy, const KvOptions& more = {}) {
    KvOptions o = often;
    o["policy"] = policy;
    for (const auto& [key, value] : more) o[key] = value;
    return o;
  };
  const auto bare = [](const char* policy, const KvOptions& more) {
    KvOptions o = more;
    o["policy"] = policy;
    return o;
  };
  return {
      bare("full", {}),
      with("random"),
      bare("streaming", {{"budget", "48"}, {"interval", "8"}}),
      bare("streaming", {{"budget", "48"}, {"interval", "8"}, {"reindex", "on"}}),
      bare("h2o", {{"budget", "48"}}),
      bare("h2o", {{"budget", "48"}, {"alloc", "adaptive"}, {"interval", "5"}}),
      bare("scissorhands", {{"budget", "48"}}),
      bare("tova", {{"budget", "48"}}),
      bare("snapkv", {{"budget", "48"}, {"window", "8"}}),
      bare("pyramidkv", {{"budget", "48"}, {"window", "8"}}),
      bare("adakv", {{"budget", "48"}, {"window", "8"}}),
      with("snapkv-d", {{"window", "8"}}),
      with("kvcompress"),
      with("rkv"),
      with("triattention", {{"protect_prompt", "off"}}),
      with("triattention", {{"scope", "union"}, {"budget", "16"}}),
      with("random", {{"packing", "block"}, {"budget", "64"}}),
      with("snapkv-d", {{"packing", "off"}}),
      with("random", {{"prefill_evict", "on"}, {"prefill_chunk", "32"}}),
      bare("quest", {{"budget", "48"}, {"select_exempt", "1"}}),
      with("h2o", {{"select", "quest"}, {"select_budget", "32"}}),
  };
}
inline std::string words_of(const KvOptions& kv) {
  std::string out;
  for (const auto& [key, value] : kv) out += key + "=" + value + " ";
  return out;
}

inline Request compressed(std::vector<int32_t> tokens, int64_t max_tokens, KvOptions kv,
                          uint64_t seed = 0) {
  Request r = greedy(std::move(tokens), max_tokens);
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 2;
  if (seed > 0) {
    r.sampling.temperature = 1.0f;
    r.sampling.seed = seed;
  }
  r.kv = std::move(kv);
  return r;
}

// Bit for bit the same answer from the same slots; which blocks were shared or copied may differ.
inline void expect_same_text(const Answer& got, const Answer& want, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_EQ(got.result.reason, FinishReason::length) << got.result.error;
  ASSERT_EQ(got.tokens, want.tokens);
  for (size_t i = 0; i < got.events.size(); ++i) {
    ASSERT_EQ(got.events[i].logprobs.size(), want.events[i].logprobs.size());
    for (size_t k = 0; k < got.events[i].logprobs.size(); ++k) {
      ASSERT_EQ(got.events[i].logprobs[k].token, want.events[i].logprobs[k].token) << i;
      ASSERT_EQ(got.events[i].logprobs[k].logprob, want.events[i].logprobs[k].logprob) << i;
    }
  }
  const KvUsage &a = got.result.kv, &b = want.result.kv;
  EXPECT_EQ(a.kept_slots, b.kept_slots);
  EXPECT_EQ(a.max_head, b.max_head);
  EXPECT_EQ(a.blocks, b.blocks);
  EXPECT_EQ(a.compactions, b.compactions);
  EXPECT_EQ(a.blocks_read, b.blocks_read);
  EXPECT_EQ(a.blocks_full, b.blocks_full);
}

// The same, and the same bytes were moved.
inline void expect_same_answer(const Answer& got, const Answer& want, const std::string& what) {
  expect_same_text(got, want, what);
  EXPECT_EQ(got.result.kv.moved_bytes, want.result.kv.moved_bytes) << what;
}

// Answers of requests that all wait when the first step begins.
// door: a request before them all, whose first step waits until they are in the queue, so that one
// step admits them whatever the speed of threads.
inline std::vector<Answer> answers_together(const std::vector<Request>& requests, TinyHeads heads,
                                            EngineConfig config_of(const ModelShape&),
                                            EngineMetrics* metrics = nullptr,
                                            const Request* door = nullptr) {
  WatchedModel model(heads);
  std::binary_semaphore all_submitted{0}, at_door{0};
  bool first = true;
  model.before_forward = [&](const StepBatch&) {
    if (first) at_door.release();
    if (first) all_submitted.acquire();
    first = false;
  };
  auto engine = EngineCore::start(model, config_of(model.shape()));
  EXPECT_TRUE(engine.ok()) << engine.status();
  std::vector<std::shared_ptr<Generation>> running;
  const auto submit = [&](const Request& r) {
    auto g = (*engine)->submit(r);
    EXPECT_TRUE(g.ok()) << g.status();
    if (g.ok()) running.push_back(*g);
  };
  if (door != nullptr) {
    submit(*door);
    at_door.acquire();
  }
  for (const Request& r : requests) submit(r);
  all_submitted.release();
  std::vector<Answer> answers;
  for (const auto& g : running) answers.push_back(drain(*g));
  if (door != nullptr) answers.erase(answers.begin());
  EXPECT_EQ((*engine)->metrics().blocks_used, 0);
  if (metrics != nullptr) *metrics = (*engine)->metrics();
  return answers;
}

inline std::vector<Answer> answers_alone(const std::vector<Request>& requests, TinyHeads heads) {
  WatchedModel model(heads);
  auto engine = EngineCore::start(model, tiny_config(model.shape(), 1));
  EXPECT_TRUE(engine.ok()) << engine.status();
  std::vector<Answer> answers;
  for (const Request& r : requests) answers.push_back(answer(**engine, r));
  return answers;
}

}  // namespace pagefold::testing
