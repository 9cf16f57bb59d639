// Bytes of a cached token, and what the KV options resolve to.
#include "base/kv_format.h"

#include <gtest/gtest.h>

namespace pagefold {
namespace {

// Worked by hand: elements, then a float16 scale (int4: and a zero point) a head or group.
TEST(KvFormat, BytesCountScales) {
  EXPECT_EQ(KvFormat(DType::f32).slot_bytes(64), 2u * 64 * 4);
  EXPECT_EQ(KvFormat(DType::bf16).slot_bytes(64), 2u * 64 * 2);
  EXPECT_EQ(KvFormat(DType::fp8_e4m3).slot_bytes(64), 2u * 64);
  EXPECT_EQ(KvFormat(DType::fp8_e5m2).slot_bytes(80), 2u * 80);
  EXPECT_EQ(KvFormat(DType::int8).slot_bytes(64), 2u * (64 + 2));
  EXPECT_EQ(KvFormat(DType::int4).slot_bytes(64), 2u * (32 + 4));
  EXPECT_EQ(KvFormat(DType::int8, DType::int4).slot_bytes(64), 66u + 36u);
  EXPECT_EQ(KvFormat(DType::int8, DType::int8, 32).slot_bytes(128), 2u * (128 + 4 * 2));
  EXPECT_EQ(KvFormat(DType::int4, DType::int4, 32).slot_bytes(80), 2u * (40 + 3 * 4));
  EXPECT_EQ(KvFormat(DType::bf16, DType::int4, 32).slot_bytes(64), 128u + 32u + 2 * 4);
  EXPECT_EQ(KvFormat(DType::int4).block_bytes(96, 32), 32u * 2 * (48 + 4));
}

KvFormat resolved(const KvTypeWords& words, const KvRecipe& recipe = {}) {
  auto f = resolve_kv_format(words, DType::f16, recipe);
  EXPECT_TRUE(f.ok()) << f.status();
  return f.ok() ? *f : KvFormat();
}
std::string refusal(const KvTypeWords& words) {
  const auto f = resolve_kv_format(words, DType::f16, {});
  EXPECT_FALSE(f.ok());
  return f.ok() ? "" : message_of(f.status());
}

TEST(KvFormat, AutoFollowsTheRecipeThenTheModel) {
  EXPECT_EQ(resolved({}).k, DType::f16);
  EXPECT_EQ(resolved({}).v, DType::f16);
  KvRecipe recipe;
  recipe.dtype = DType::fp8_e4m3;
  recipe.k_scale = {0.5f, 2};
  recipe.v_scale = {1, 4};
  EXPECT_EQ(resolved({}, recipe).k, DType::fp8_e4m3);
  EXPECT_EQ(resolved({}, recipe).k_scale, recipe.k_scale);
  EXPECT_EQ(resolved({}, recipe).v_scale, recipe.v_scale);
  // An explicit value wins over the recipe; the scales are of fp8 alone.
  const KvFormat k8 = resolved({"int8", "fp8_e5m2", 0}, recipe);
  EXPECT_EQ(k8.k, DType::int8);
  EXPECT_EQ(k8.v, DType::fp8_e5m2);
  EXPECT_TRUE(k8.k_scale.empty());
  EXPECT_EQ(k8.v_scale, recipe.v_scale);
}

TEST(KvFormat, ValuesFollowKeys) {
  EXPECT_EQ(resolved({"int8", "auto", 0}).v, DType::int8);
  EXPECT_EQ(resolved({"fp8", "auto", 0}).v, DType::fp8_e4m3);
  EXPECT_EQ(resolved({"auto", "int4", 0}).k, DType::f16);
  EXPECT_EQ(resolved({"int8", "int4", 32}).group, 32);
  EXPECT_EQ(resolved({"int8", "int4", 32}).name(), "k int8, v int4, groups of 32");
  EXPECT_EQ(resolved({"float", "auto", 0}).name(), "float32");
}

TEST(KvFormat, KeysOfFourBitsShareScalesInGroupsOfThirtyTwoUnlessToldOtherwise) {
  EXPECT_EQ(resolved({"int4", "auto"}).group, 32);
  EXPECT_EQ(resolved({"int4", "int8"}).group, 32);
  EXPECT_EQ(resolved({"int4", "auto", 0}).group, 0);
  EXPECT_EQ(resolved({"int8", "int4"}).group, 0);
  EXPECT_EQ(resolved({"int8", "auto"}).group, 0);
  EXPECT_EQ(resolved({"fp8", "auto"}).group, 0);
  KvRecipe recipe;
  recipe.dtype = DType::int4;
  EXPECT_EQ(resolved({}, recipe).group, 32);
  EXPECT_EQ(kv_format_warning(resolved({"int4", "auto"})), "");
}

TEST(KvFormat, OnlyInt4KeysAreRotated) {
  EXPECT_TRUE(resolved({"int4", "auto", 0}).hadamard_keys);
  EXPECT_TRUE(resolved({"int4", "bfloat16", 0}).hadamard_keys);
  EXPECT_FALSE(resolved({"int8", "int4", 0}).hadamard_keys);
}

TEST(KvFormat, WrongWordsSayWhatWouldBeRight) {
  EXPECT_NE(refusal({"q4_0", "auto", 0}).find("--kv-cache-dtype"), std::string::npos);
  EXPECT_NE(refusal({"q4_0", "auto", 0}).find("int4"), std::string::npos);
  EXPECT_NE(refusal({"auto", "int2", 0}).find("--kv-cache-dtype-v"), std::string::npos);
  EXPECT_NE(refusal({"int8", "auto", 64}).find("--kv-cache-group"), std::string::npos);
  EXPECT_NE(refusal({"int8", "auto", -2}).find("auto, 0"), std::string::npos);
  EXPECT_NE(refusal({"auto", "fp8", 32}).find("int8"), std::string::npos);
}

TEST(KvFormat, WarnsOfKeysOfFourBitsWithOneScaleAHead) {
  EXPECT_NE(kv_format_warning(DType::int4).find("--kv-cache-group 32"), std::string::npos);
  EXPECT_EQ(kv_format_warning(KvFormat(DType::int4, DType::int4, 32)), "");
  EXPECT_EQ(kv_format_warning(KvFormat(DType::int8, DType::int4)), "");
}

TEST(KvFormat, WarnsOfUnscaledE4m3Alone) {
  EXPECT_EQ(kv_format_warning(DType::bf16), "");
  EXPECT_EQ(kv_format_warning(DType::fp8_e5m2), "");
  EXPECT_NE(kv_format_warning(DType::fp8_e4m3).find("k_scale and v_scale"), std::string::npos);
  KvFormat f = DType::fp8_e4m3;
  f.k_scale = {0.25f};
  EXPECT_NE(kv_format_warning(f).find("the value cache"), std::string::npos);
  f.v_scale = {1.0f};
  EXPECT_NE(kv_format_warning(f), "");
  f.v_scale = {0.5f};
  EXPECT_EQ(kv_format_warning(f), "");
}

}  // namespace
}  // namespace pagefold
