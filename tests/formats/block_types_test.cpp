// Golden values: the gguf Python package on random blocks (tools/record_block_types.py).
#include "formats/quant/block_types.h"

#include <absl/strings/escaping.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "base/random.h"
#include "support/quantize.h"

namespace pagefold::testing {
namespace {

struct Golden {
  TensorType type;
  std::string bytes;
  std::vector<float> floats;
};

std::vector<Golden> golden() {
  const auto text = read_file(
      std::string(PAGEFOLD_SOURCE_DIR) + "/tests/formats/golden/block_types.json", size_t{1} << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  const auto json = parse_json(*text);
  EXPECT_TRUE(json.ok()) << json.status();
  std::vector<Golden> all;
  for (int t = 0; t <= static_cast<int>(TensorType::MXFP4); ++t) {
    const auto type = static_cast<TensorType>(t);
    const Json& entry = json->at(std::string(tensor_type_info(type).name));
    Golden g{.type = type, .bytes = {}, .floats = {}};
    std::string raw;
    EXPECT_TRUE(absl::Base64Unescape(entry.at("bytes").get<std::string>(), &g.bytes));
    EXPECT_TRUE(absl::Base64Unescape(entry.at("floats").get<std::string>(), &raw));
    g.floats.resize(raw.size() / sizeof(float));
    std::memcpy(g.floats.data(), raw.data(), raw.size());
    all.push_back(std::move(g));
  }
  return all;
}

const std::byte* golden_bytes(const Golden& g) {
  return reinterpret_cast<const std::byte*>(g.bytes.data());
}

// Exactly equal as numbers; -0 and +0 count as the same (8 - 8 times a negative scale).
TEST(BlockTypes, DequantizeEqualsTheGgufPackage) {
  for (const Golden& g : golden()) {
    const TensorTypeInfo& info = tensor_type_info(g.type);
    const auto n = static_cast<int64_t>(g.floats.size());
    ASSERT_GE(n, 2 * info.block_elements);
    ASSERT_EQ(static_cast<int64_t>(g.bytes.size()), n / info.block_elements * info.block_bytes);
    std::vector<float> out(g.floats.size(), NAN);
    dequantize(g.type, golden_bytes(g), n, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], g.floats[i]) << info.name << " element " << i;
    }
  }
}

TEST(BlockTypes, UnpackedPartsGiveTheSameValues) {
  for (const Golden& g : golden()) {
    const BlockTypeTraits* traits = block_type_traits(g.type);
    if (!traits) continue;
    const std::string_view name = tensor_type_info(g.type).name;
    const size_t n = g.floats.size();
    const size_t groups = n / static_cast<size_t>(traits->group);
    std::vector<int8_t> q(n);
    std::vector<float> scale(groups), min(groups);
    unpack_blocks(g.type, golden_bytes(g), static_cast<int64_t>(n), q.data(), scale.data(),
                  traits->has_min ? min.data() : nullptr);
    for (size_t i = 0; i < n; ++i) {
      const size_t group = i / static_cast<size_t>(traits->group);
      const float x = traits->table ? (*traits->table)[static_cast<size_t>(q[i])] : q[i];
      ASSERT_EQ(x * scale[group] + min[group], g.floats[i]) << name << i;
      // q * scale is exact: the same in double.
      ASSERT_EQ(double{x * scale[group]}, double{x} * double{scale[group]});
      if (traits->bits == 4) {
        ASSERT_GE(q[i], 0) << name;
        ASSERT_LE(q[i], 15) << name;
      }
    }
    for (size_t i = 0; traits->scale_f16 && i < groups; ++i) {
      ASSERT_EQ(f16_to_f32(f32_to_f16(scale[i])), scale[i]) << name;
      ASSERT_EQ(f16_to_f32(f32_to_f16(min[i])), min[i]) << name;
    }
  }
}

TEST(BlockTypes, OnlyQuantisedTypesHaveTraits) {
  EXPECT_EQ(block_type_traits(TensorType::F32), nullptr);
  EXPECT_EQ(block_type_traits(TensorType::F16), nullptr);
  EXPECT_EQ(block_type_traits(TensorType::BF16), nullptr);
  EXPECT_EQ(block_type_traits(TensorType::F8_E4M3), nullptr);
  for (int t = static_cast<int>(TensorType::Q4_0); t <= static_cast<int>(TensorType::MXFP4); ++t) {
    const auto type = static_cast<TensorType>(t);
    ASSERT_NE(block_type_traits(type), nullptr);
    EXPECT_EQ(tensor_type_info(type).block_elements % block_type_traits(type)->group, 0);
  }
}

TEST(BlockTypes, BytesNeedNotBeAligned) {
  for (const Golden& g : golden()) {
    std::string moved(1, 'x');
    moved += g.bytes;
    std::vector<float> out(g.floats.size());
    dequantize(g.type, reinterpret_cast<const std::byte*>(moved.data()) + 1,
               static_cast<int64_t>(out.size()), out.data());
    EXPECT_EQ(out, g.floats) << tensor_type_info(g.type).name;
  }
}

// The quantiser of the tests against the reader: the error is within the type's step.
TEST(BlockTypes, TestQuantiserStaysWithinAStep) {
  std::vector<float> values;
  for (int i = 0; i < 32 * 40; ++i) values.push_back(std::sin(static_cast<float>(i * i)) * 2.0f);
  std::fill_n(values.begin(), 32, 0.0f);       // a block of zeros
  std::fill_n(values.begin() + 32, 32, 3.0f);  // a block of one value
  const std::pair<TensorType, float> allowed[] = {{TensorType::F32, 0.0f},
                                                  {TensorType::F16, 3.0f / 2048},
                                                  {TensorType::BF16, 3.0f / 256},
                                                  {TensorType::Q8_0, 3.0f / 127},
                                                  {TensorType::Q4_0, 2.0f / 8 + 0.01f},
                                                  {TensorType::Q4_1, 4.0f / 15 / 2 + 0.01f}};
  for (const auto& [type, limit] : allowed) {
    const Bytes bytes = quantize(type, values);
    std::vector<float> back(values.size());
    dequantize(type, bytes.data(), static_cast<int64_t>(values.size()), back.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::abs(back[i] - values[i]), limit) << tensor_type_info(type).name << " " << i;
    }
  }
}

}  // namespace
}  // namespace pagefold::testing
