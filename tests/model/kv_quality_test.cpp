// What a cache of fewer bits does to the default model (PAGEFOLD_TEST_MODEL) and to the same model
// with biased keys, as Qwen2's are: KLD against bfloat16 KV, with exact activations, so that
// nothing but the cache differs.
#include <cstdlib>
#include <deque>

#include "base/threads.h"
#include "model/golden_models.h"
#include "support/sanitizers.h"

namespace pagefold::testing {
namespace {

constexpr size_t kTokens = 192;
// In nats. Measured on 1,024 tokens: docs/precision.md.
constexpr struct {
  DType type;
  double kld;
} kBounds[] = {{DType::int8, 1e-3}, {DType::fp8_e4m3, 1e-2}, {DType::int4, 5e-2}};

// As the engine has it where nobody names a group.
KvFormat usual(DType type) { return {type, type, kv_group_of(kAutoKvGroup, type)}; }

class KvQuality : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "numbers, not memory: too slow here";
    const char* path = std::getenv("PAGEFOLD_TEST_MODEL");
    if (path == nullptr || !std::filesystem::exists(path))
      GTEST_SKIP() << "PAGEFOLD_TEST_MODEL names no file";
    auto files = open_model(path);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    tensors_.assign(files_.tensors().begin(), files_.tensors().end());
    if (GetParam()) add_biases();
    const auto text = read_file(PAGEFOLD_SOURCE_DIR "/tests/model/golden/prose.json", 1 << 20);
    const auto prose = parse_json(text.value());
    ASSERT_TRUE(prose.ok()) << prose.status();
    tokens_ = prose->at("tokens").get<std::vector<int32_t>>();
    tokens_.resize(kTokens);
  }

  // Large ones in the slowest rotary bands: they add nearly the same to the logits of all keys, so
  // that the model stays the trained one, and its keys stand far out there.
  void add_biases() {
    const ModelShape& s = files_.config.shape;
    const auto bands = static_cast<size_t>(s.head_dim / 2), dim = static_cast<size_t>(s.head_dim);
    files_.config.attention_bias = true;
    const auto add = [&](int layer, const char* name, std::vector<float> values) {
      biases_.push_back(std::move(values));
      tensors_.push_back({fmt::format("blk.{}.attn_{}.bias", layer, name),
                          TensorType::F32,
                          {static_cast<int64_t>(biases_.back().size())},
                          std::as_bytes(std::span(biases_.back())),
                          "biases"});
    };
    const size_t queries = static_cast<size_t>(s.n_heads) * dim,
                 keys = static_cast<size_t>(s.n_kv_heads) * dim;
    for (int layer = 0; layer < s.n_layers; ++layer) {
      std::vector<float> key(keys, 0.0f);
      for (size_t i = 0; i < keys; ++i) {
        const size_t band = i % dim / 2;
        const auto draw = static_cast<float>(splitmix(static_cast<uint64_t>(layer), i) % 1000);
        if (band == bands - 4 || band >= bands - 2) key[i] = 20 * (2 * draw / 999 - 1);
      }
      add(layer, "q", std::vector<float>(queries, 0.0f));
      add(layer, "k", std::move(key));
      add(layer, "v", std::vector<float>(keys, 0.0f));
    }
  }

  std::vector<float> logits(const KvFormat& kv) const {
    auto backend = make_cpu_backend(
        {.threads = usable_cores(), .dtype = DType::f32, .activations = Activations::bits16});
    auto weights =
        load_weights(**backend, files_.config, files_.quant, tensors_, Naming::gguf, nullptr);
    if (!weights.ok()) throw std::runtime_error(message_of(weights.status()));
    ModelRunner runner(
        std::make_unique<TransformerModel>(*std::move(backend), files_.config, *std::move(weights)),
        kTokens, kv);
    return runner.run(tokens_, kTokens);
  }

  ModelFiles files_;
  std::vector<TensorInfo> tensors_;
  std::deque<std::vector<float>> biases_;
  std::vector<int32_t> tokens_;
};

TEST_P(KvQuality, StaysWithinItsBoundOfBfloat16) {
  const std::vector<float> want = logits(DType::bf16);
  for (const auto& [type, bound] : kBounds) {
    const double kld = mean_kld(want, logits(usual(type)), files_.config.shape.vocab_size);
    EXPECT_LT(kld, bound) << dtype_name(type);
    EXPECT_GT(kld, bound / 100) << dtype_name(type) << ": are these its keys and values?";
    RecordProperty(std::string(dtype_name(type)), fmt::format("{:.2e}", kld));
  }
}

INSTANTIATE_TEST_SUITE_P(DefaultModel, KvQuality, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "biased_keys" : "as_it_is"; });

}  // namespace
}  // namespace pagefold::testing
