// A warm decode step allocates nothing on the engine thread.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/engine_test_util.h"

namespace {
thread_local int64_t allocations = 0;  // of this thread
}

// Not inlined: gcc would see free() meet a pointer from new.
__attribute__((noinline)) void* operator new(size_t n) {
  ++allocations;
  if (void* p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(size_t n, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(n);
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace pagefold {
namespace {

// Constant logits, no allocation; looks at the counter of the engine thread in every step.
class QuietModel final : public LanguageModel {
 public:
  QuietModel() {
    shape_.n_layers = 2;
    shape_.n_heads = shape_.n_kv_heads = 2;
    shape_.head_dim = 8;
    shape_.vocab_size = 100;
    shape_.context_length = 1024;
    shape_.layer_window = {0, 32};
  }
  const ModelShape& shape() const override { return shape_; }
  Status init(const KvShape&, const StepLimits&) override { return ok_status(); }
  uint64_t block_bytes(const KvShape&) const override { return 512; }
  void blocks_freed(std::span<const BlockId>) override {}
  uint64_t weight_bytes() const override { return 0; }

  void forward(const StepBatch& batch, float* logits) override {
    const bool decode = ready && batch.tokens.size() == 4 && batch.seqs.size() == 4;
    if (decode) {
      ++decode_steps;
      // The first steps size the buffers.
      if (decode_steps > 20) allocated_warm += allocations - at_last_step;
    }
    for (size_t i = 0; i < batch.logit_rows.size() * 100; ++i) {
      logits[i] = static_cast<float>(i % 7);
    }
    // Consumers that keep up, on this thread so that the test does not depend on timing.
    for (size_t g = 0; decode && g < 4; ++g) (*generations)[g]->poll(events[g]);
    at_last_step = allocations;
  }

  std::vector<std::shared_ptr<Generation>>* generations = nullptr;
  std::atomic<bool> ready{false};  // all generations are listed
  std::vector<TokenEvent> events[4];
  int64_t decode_steps = 0, allocated_warm = 0, at_last_step = 0;

 private:
  ModelShape shape_;
};

TEST(Allocation, AWarmDecodeStepAllocatesNothing) {
  QuietModel model;
  std::vector<std::shared_ptr<Generation>> generations;
  generations.reserve(4);
  model.generations = &generations;
  EngineConfig config;
  config.max_model_len = 1024;
  config.kv_cache_memory_bytes = 512 * 4096;
  auto engine = EngineCore::start(model, config);
  ASSERT_TRUE(engine.ok());
  for (int i = 0; i < 4; ++i) {
    // Sampled with everything that has a buffer. 1,000 tokens cross many block boundaries.
    Request r = testing::greedy({1, 2, 3}, 1000);
    r.sampling.temperature = 1;
    r.sampling.top_p = 0.9f;
    r.sampling.top_k = 50;
    r.sampling.frequency_penalty = 0.5f;
    r.sampling.seed = 1;
    generations.push_back(*(*engine)->submit(std::move(r)));
  }
  model.ready = true;
  for (const auto& g : generations) {
    while (!g->finished()) g->wait();
  }
  EXPECT_GT(model.decode_steps, 100) << "the four must run together for a while";
  EXPECT_EQ(model.allocated_warm, 0);
}

}  // namespace
}  // namespace pagefold
