// Toy checkpoints packed by the libraries that define their formats, and the logits that
// Transformers gives with the weights those libraries unpack (tools/record_quantised.py).
#include "model/golden_models.h"

namespace pagefold::testing {
namespace {

class Fixtures : public ::testing::TestWithParam<const char*> {};

TEST_P(Fixtures, LogitsOfTheRecordedWeights) {
  const std::filesystem::path folder =
      std::filesystem::path(PAGEFOLD_SOURCE_DIR) / "tests/model/fixtures" / GetParam();
  const auto text = read_file(folder / "logits.json", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto json = parse_json(*text);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto tokens = json->at("tokens").get<std::vector<int32_t>>();
  const std::vector<float> expected = floats_of(json->at("logits"));
  ASSERT_EQ(expected.size(), tokens.size() * 64);
  const auto files = open_model(folder);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto n = static_cast<int64_t>(tokens.size());
  for (const std::string& isa : all_isas()) {
    const auto got = ModelRunner(*files, n, {}, isa).run(tokens, n);
    EXPECT_LT(mean_kld(expected, got, 64), 1e-6) << isa;
    const auto narrow =
        ModelRunner(*files, n, {DType::bf16, DType::bf16, false}, isa).run(tokens, n);
    EXPECT_LT(mean_kld(expected, narrow, 64), 1e-2) << isa;
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, Fixtures,
                         ::testing::Values("bnb_nf4", "bnb_int8", "ct_w4a16_asym", "gptq_act",
                                           "awq", "ct_fp8", "fp8_block"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace pagefold::testing
