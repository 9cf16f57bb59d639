// What `inspect` says of quantised folders: tests/model/fixtures, without loading them.
#include "cli/describe.h"

#include <gtest/gtest.h>

namespace pagefold {
namespace {

ModelDescription described(const char* name) {
  auto d = describe_model(std::string(PAGEFOLD_SOURCE_DIR) + "/tests/model/fixtures/" + name);
  EXPECT_TRUE(d.ok()) << d.status();
  return d.value_or(ModelDescription());
}

// Two layers: q and o of 32 x 32, k and v of 16 x 32, gate, up and down of 64 x 32; an embedding of
// 64 x 32, five norms of 32.
constexpr int64_t kLinear = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32), kRest = 64 * 32 + 5 * 32;

TEST(DescribeQuantised, CountsWeightsNotWords) {
  for (const char* name :
       {"awq", "gptq_act", "ct_w4a16_asym", "bnb_nf4", "bnb_int8", "ct_fp8", "fp8_block"}) {
    const ModelDescription d = described(name);
    EXPECT_EQ(d.parameters(), kLinear + kRest) << name;
    EXPECT_EQ(d.quant_problem, "") << name;
    EXPECT_EQ(d.stored.config, "bfloat16") << name;
  }
}

TEST(DescribeQuantised, NamesTheFormat) {
  EXPECT_EQ(described("awq").weight_format(), "awq, 4 bit, groups of 32");
  EXPECT_EQ(described("gptq_act").weight_format(), "gptq, 4 bit, groups of 16, act-order");
  EXPECT_EQ(described("ct_w4a16_asym").weight_format(), "compressed-tensors, 4 bit, groups of 32");
  EXPECT_EQ(described("bnb_nf4").weight_format(), "bitsandbytes, 4 bit");
  EXPECT_EQ(described("bnb_int8").weight_format(), "bitsandbytes, int8");
}

// AWQ: 4 bits, and a float16 scale and 4 bits of zero point for 32 weights.
TEST(DescribeQuantised, BitsAWeight) {
  const double linear = kLinear * (4 + 20.0 / 32), rest = kRest * 16;
  EXPECT_NEAR(described("awq").bits_per_weight(), (linear + rest) / (kLinear + kRest), 1e-9);
}

TEST(DescribeQuantised, SaysWhatCannotBeRun) {
  const auto json = parse_json(R"({"quantization_config": {"quant_method": "hqq"}})");
  const SafetensorsSet none;
  const auto d =
      describe_folder(*json, Json(), none, "path", quant_config_from_hf(*json, "config.json"));
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_NE(d->quant_problem.find("hqq"), std::string::npos);
}

}  // namespace
}  // namespace pagefold
