// Logits of every architecture and rope kind against Hugging Face transformers, and the rule that a
// row's numbers depend on nothing but what it sees.
#include "model/golden_models.h"

namespace pagefold::testing {
namespace {

class Logits : public ::testing::TestWithParam<GoldenModel> {
 protected:
  void SetUp() override {
    write_hf(folder_.path(), GetParam().config, tiny_tensors(GetParam().config), TensorType::BF16);
    auto files = open_model(folder_.path());
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
  }
  int64_t size() const { return static_cast<int64_t>(GetParam().tokens.size()); }
  TempFolder folder_;
  ModelFiles files_;
};

TEST_P(Logits, ExactPathEqualsTransformers) {
  for (const std::string& isa : all_isas()) {
    ModelRunner runner(files_, size(), {}, isa);
    EXPECT_LT(golden_error(GetParam(), runner.run(GetParam().tokens, size())), 2e-5) << isa;
  }
}

TEST_P(Logits, SixteenBitPathsStayClose) {
  const int64_t vocab = GetParam().vocab();
  ModelRunner exact(files_, size());
  const std::vector<float> reference = exact.run(GetParam().tokens, size());
  for (const std::string& isa : all_isas()) {
    ModelRunner half(files_, size(), {DType::f16, DType::f16}, isa);
    EXPECT_LT(mean_kld(reference, half.run(GetParam().tokens, size()), vocab), 1e-5) << isa;
    ModelRunner brain(files_, size(), {DType::bf16, DType::bf16}, isa);
    EXPECT_LT(mean_kld(reference, brain.run(GetParam().tokens, size()), vocab), 5e-4) << isa;
  }
}

TEST_P(Logits, ChunksAndThreadsChangeNothing) {
  const bool quick = size() > 70;  // long prompts: decode by one only in one setting
  for (const Precision& p :
       {Precision{}, Precision{DType::bf16, DType::bf16}, Precision{DType::f16, DType::f32}}) {
    for (const std::string& isa : all_isas()) {
      std::vector<float> first;
      for (const int threads : {1, 2, 3}) {
        ModelRunner runner(files_, size(), p, isa, threads);
        for (const int64_t chunk : {size(), int64_t{16}, int64_t{7}, int64_t{1}}) {
          if (quick && (isa == "scalar" || (chunk < 16 && threads != 2))) continue;
          if (threads == 3 && chunk != 7) continue;
          const std::vector<float> logits = runner.run(GetParam().tokens, chunk);
          if (first.empty()) first = logits;
          ASSERT_EQ(first.size(), logits.size());
          ASSERT_EQ(std::memcmp(first.data(), logits.data(), first.size() * sizeof(float)), 0)
              << isa << ", " << threads << " threads, chunks of " << chunk << ", "
              << dtype_name(p.dtype);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Logits, ::testing::ValuesIn(golden_models()), golden_name);

// The recorded numbers tell the cases apart: a model that ignored a field would fail.
TEST(Goldens, DifferWhereOneFieldDiffers) {
  const auto logits = [](const Json& config, std::string_view name) {
    TempFolder folder;
    write_hf(folder.path(), config, tiny_tensors(config), TensorType::BF16);
    auto files = open_model(folder.path());
    EXPECT_TRUE(files.ok()) << files.status();
    const GoldenModel& g = golden_model(name);
    const auto n = static_cast<int64_t>(g.tokens.size());
    return golden_error(g, ModelRunner(*files, n).run(g.tokens, n));
  };
  const auto changed = [&](std::string_view name, const char* object, const char* field,
                           const Json& value) {
    Json c = golden_model(name).config;
    (*object ? c[object] : c)[field] = value;
    return logits(c, name);
  };
  constexpr double kFar = 1e-3;
  EXPECT_GT(changed("llama", "", "rope_theta", 11000.0), kFar);
  EXPECT_GT(changed("llama_mha_tied_linear", "rope_scaling", "factor", 2.4), kFar);
  EXPECT_GT(changed("llama3", "rope_scaling", "factor", 7.0), kFar);
  EXPECT_GT(changed("llama3", "rope_scaling", "high_freq_factor", 3.0), kFar);
  EXPECT_GT(changed("llama_yarn", "rope_scaling", "factor", 3.5), kFar);
  EXPECT_GT(changed("llama_yarn_attention", "rope_scaling", "attention_factor", 0.75), kFar);
  EXPECT_GT(changed("llama_yarn_attention", "rope_scaling", "beta_slow", 1.0), kFar);
  EXPECT_GT(changed("llama_yarn_untruncated", "rope_scaling", "truncate", true), kFar);
  EXPECT_GT(changed("llama_yarn_mscale", "rope_scaling", "mscale", 1.5), kFar);
  EXPECT_GT(changed("mistral_window", "", "sliding_window", 25), kFar);
  EXPECT_GT(changed("mistral_window_300", "", "sliding_window", 200), kFar);
  EXPECT_GT(changed("qwen2_window", "", "max_window_layers", 2), kFar);
  EXPECT_GT(changed("qwen3", "", "rms_norm_eps", 1e-3), kFar / 10);
}

}  // namespace
}  // namespace pagefold::testing
