// The same model from every file form: Hugging Face folders of both config generations, one or
// several safetensors, and GGUF with permuted (llama) or plain (qwen) heads, in all types that hold
// its weights without loss.
#include "model/golden_models.h"

namespace pagefold::testing {
namespace {

constexpr double kExact = 2e-5;

double error_of(const GoldenModel& g, const std::filesystem::path& path) {
  auto files = open_model(path);
  EXPECT_TRUE(files.ok()) << files.status();
  if (!files.ok()) return NAN;
  const auto n = static_cast<int64_t>(g.tokens.size());
  return golden_error(g, ModelRunner(*files, n).run(g.tokens, n));
}

// config.json as version 5 of Transformers writes it.
Json v5(Json c) {
  Json rope = c.contains("rope_scaling") ? c["rope_scaling"] : Json{{"rope_type", "default"}};
  if (rope.contains("type")) {
    rope["rope_type"] = rope["type"];
    rope.erase("type");
  }
  rope["rope_theta"] = c["rope_theta"];
  c.erase("rope_theta");
  c.erase("rope_scaling");
  c["rope_parameters"] = rope;
  c["dtype"] = "bfloat16";
  return c;
}

class Forms : public ::testing::TestWithParam<GoldenModel> {};

TEST_P(Forms, HuggingFaceFolders) {
  const GoldenModel& g = GetParam();
  const TempFolder folder;
  for (const TensorType type : {TensorType::F32, TensorType::F16, TensorType::BF16}) {
    for (const bool new_config : {false, true}) {
      const auto path = folder.path() / fmt::format("{}_{}", static_cast<int>(type), new_config);
      write_hf(path, new_config ? v5(g.config) : g.config, tiny_tensors(g.config), type,
               new_config ? 3 : 1);
      EXPECT_LT(error_of(g, path), kExact) << path;
    }
  }
}

TEST_P(Forms, Gguf) {
  const GoldenModel& g = GetParam();
  const Json rope = g.config.value("rope_scaling", Json::object());
  if (!rope.value("truncate", true) || rope.contains("mscale"))
    GTEST_SKIP() << "GGUF cannot say this";
  const auto config = config_from_hf(g.config, "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  const TempFolder folder;
  for (const TensorType type : {TensorType::F32, TensorType::F16, TensorType::BF16,
                                TensorType::Q8_0, TensorType::Q4_0, TensorType::Q4_1}) {
    const auto path = folder.path() / fmt::format("{}.gguf", static_cast<int>(type));
    write_gguf(path, g.config, config->shape.layer_window, type);
    EXPECT_LT(error_of(g, path), kExact) << path;
  }
}

// The default path of block types: inputs in int8, 16-bit cache.
TEST_P(Forms, GgufWithInt8Inputs) {
  const GoldenModel& g = GetParam();
  const auto config = config_from_hf(g.config, "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  const TempFolder folder;
  const auto path = folder.path() / "model.gguf";
  write_gguf(path, g.config, config->shape.layer_window, TensorType::Q4_1);
  auto files = open_model(path);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto n = static_cast<int64_t>(g.tokens.size());
  const auto exact = ModelRunner(*files, n).run(g.tokens, n);
  for (const std::string& isa : all_isas()) {
    ModelRunner fast(*files, n, {DType::bf16, DType::bf16, true}, isa, 2);
    const auto logits = fast.run(g.tokens, n);
    EXPECT_LT(mean_kld(exact, logits, g.vocab()), 1e-2) << isa;
    ASSERT_EQ(logits, fast.run(g.tokens, 7)) << isa;
    ASSERT_EQ(logits,
              ModelRunner(*files, n, {DType::bf16, DType::bf16, true}, isa).run(g.tokens, 1))
        << isa;
  }
}

std::vector<GoldenModel> short_models() {
  std::vector<GoldenModel> out;
  for (const GoldenModel& g : golden_models()) {
    if (g.tokens.size() <= 70) out.push_back(g);
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Golden, Forms, ::testing::ValuesIn(short_models()), golden_name);

}  // namespace
}  // namespace pagefold::testing
