// The encoders against the worked cases: packed words, codes and scales bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "formats/weight_cases.h"
#include "quantize/bnb_weights.h"
#include "quantize/fp8_weights.h"
#include "quantize/int_weights.h"

namespace pagefold {
namespace {

using testing::base64_of;
using testing::list_of;
using testing::weight_cases;

template <class T>
std::vector<T> values_of(const OutTensor& t) {
  std::vector<T> out(t.bytes.size() / sizeof(T));
  std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  return out;
}
const OutTensor& named(const std::vector<OutTensor>& tensors, std::string_view suffix) {
  for (const OutTensor& t : tensors) {
    if (t.suffix == suffix) return t;
  }
  ADD_FAILURE() << "no tensor " << suffix;
  return tensors.front();
}
// [a][b] -> [b][a]
template <class To, class From>
std::vector<To> transposed(const std::vector<From>& x, int64_t a, int64_t b) {
  std::vector<To> out(x.size());
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = 0; j < b; ++j)
      out[static_cast<size_t>(j * a + i)] = static_cast<To>(x[static_cast<size_t>(i * b + j)]);
  }
  return out;
}

IntWeights int_weights(const Json& c, const char* zeros) {
  IntWeights w;
  w.bits = c["bits"];
  w.rows = c["out_features"];
  w.cols = c["in_features"];
  w.group = c["group_size"];
  w.q = transposed<uint8_t>(list_of<int>(c["int_weight_KxN"]), w.cols, w.rows);
  w.zero = transposed<uint8_t>(list_of<int>(c[zeros]), w.groups(), w.rows);
  w.scale = transposed<uint16_t>(list_of<int>(c["scales_f16_bits_GxN"]), w.groups(), w.rows);
  return w;
}

TEST(AwqEncoder, PacksTheCases) {
  const Json file = weight_cases("awq_pack.json");
  for (const Json& c : file["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const IntWeights w = int_weights(c, "int_zeros_GxN");
    const auto tensors = pack_awq(w);
    EXPECT_EQ(values_of<uint32_t>(named(tensors, "qweight")), list_of<uint32_t>(c["qweight_hex"]));
    EXPECT_EQ(values_of<uint32_t>(named(tensors, "qzeros")), list_of<uint32_t>(c["qzeros_hex"]));
    EXPECT_EQ(values_of<uint16_t>(named(tensors, "scales")),
              list_of<uint16_t>(c["scales_f16_bits_GxN"]));
    EXPECT_EQ(named(tensors, "qweight").shape, list_of<int64_t>(c["shapes"]["qweight"]));
    EXPECT_EQ(named(tensors, "scales").shape, list_of<int64_t>(c["shapes"]["scales"]));
    EXPECT_EQ(int_values(w).values,
              transposed<float>(list_of<double>(c["dequant_KxN_exact"]), w.cols, w.rows));
  }
}

TEST(GptqEncoder, PacksTheCases) {
  const Json file = weight_cases("gptq_pack.json");
  for (const Json& c : file["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    IntWeights w = int_weights(c, "int_zeros_true_GxN");
    w.g_idx = list_of<int32_t>(c["g_idx"]);
    for (const bool v2 : {false, true}) {
      const auto tensors = pack_gptq(w, v2);
      EXPECT_EQ(values_of<uint32_t>(named(tensors, "qweight")),
                list_of<uint32_t>(c["qweight_hex"]));
      EXPECT_EQ(values_of<uint32_t>(named(tensors, "qzeros")),
                list_of<uint32_t>(c[v2 ? "qzeros_v2_hex" : "qzeros_v1_hex"]));
      EXPECT_EQ(values_of<int32_t>(named(tensors, "g_idx")), w.g_idx);
      EXPECT_EQ(named(tensors, "qweight").shape, list_of<int64_t>(c["shapes"]["qweight"]));
      EXPECT_EQ(named(tensors, "qzeros").shape, list_of<int64_t>(c["shapes"]["qzeros"]));
    }
    EXPECT_EQ(int_values(w).values,
              transposed<float>(list_of<double>(c["dequant_KxN_exact"]), w.cols, w.rows));
  }
}

TEST(Fp8Encoder, ScalesAndCodesOfTheExamples) {
  const Json examples = weight_cases("fp8.json")["weight_scale_examples"];
  const Matrix w{4, 4, list_of<float>(examples["W_NxK"])};
  const auto check = [&](const char* name, Fp8Scales scales) {
    SCOPED_TRACE(name);
    const Json& want = examples[name];
    const Fp8Weights got = quantize_fp8(w, scales, 2);
    EXPECT_EQ(got.codes, list_of<uint8_t>(want["weight_codes"]));
    EXPECT_EQ(got.scale, list_of<float>(want["scale"]));
    EXPECT_EQ(fp8_values(got).values, list_of<float>(want["dequant"]));
  };
  check("per_tensor_weight_scale_[1]", Fp8Scales::tensor);
  check("per_channel_weight_scale_[N,1]", Fp8Scales::channel);
  check("block_2x2_weight_scale_inv_[N/b,K/b]", Fp8Scales::block);
}

TEST(BnbEncoder, FourBitCases) {
  const Json file = weight_cases("nf4.json");
  EXPECT_EQ(list_of<float>(Json(bnb_dynamic_table())),
            base64_of<float>(file["nested_quant_map_f32"]));
  const Matrix source{8, 128, base64_of<float>(file["source"])};
  ASSERT_EQ(file["cases"].size(), 2u);
  for (const Json& c : file["cases"]) {
    const bool nf4 = c["name"] == "nf4_double_quant";
    SCOPED_TRACE(c["name"].get<std::string>());
    const Bnb4Weights w = quantize_bnb4(source, nf4 ? Bnb4Type::nf4 : Bnb4Type::fp4, true);
    EXPECT_EQ(w.packed, base64_of<uint8_t>(c["packed_weight_u8"]));
    EXPECT_EQ(w.absmax, list_of<float>(c["absmax_before_double_quant_f32"]));
    EXPECT_EQ(w.codes, list_of<uint8_t>(c["absmax_u8"]));
    EXPECT_EQ(w.nested_absmax, list_of<float>(c["nested_absmax_f32"]));
    EXPECT_EQ(bnb4_state(w, DType::bf16), c["quant_state_u8"].get<std::string>());
    EXPECT_EQ(bnb4_values(w).values, base64_of<float>(c["dequant_f32_flat_double_quant"]));
    const auto tensors = pack_bnb4(w, DType::bf16);
    EXPECT_EQ(named(tensors, "weight").shape, (std::vector<int64_t>{512, 1}));
    EXPECT_EQ(named(tensors, "weight.nested_quant_map").shape, (std::vector<int64_t>{256}));
  }
}

TEST(BnbEncoder, EightBitCase) {
  const Json file = weight_cases("nf4.json");
  const Matrix source{8, 128, base64_of<float>(file["source"])};
  const Bnb8Weights w = quantize_bnb8(source);
  EXPECT_EQ(w.scb, list_of<float>(file["int8"]["SCB"]));
  EXPECT_EQ(w.q, base64_of<int8_t>(file["int8"]["weight_i8"]));
  const auto want = base64_of<double>(file["int8"]["dequant_f64"]);
  const Matrix got = bnb8_values(w);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(double{got.values[i]}, want[i], std::abs(want[i]) * 2e-7);
}

TEST(BnbEncoder, OddCountsPartBlocksAndZeros) {
  Matrix w{3, 33, std::vector<float>(99, 0.0f)};
  for (size_t i = 64; i < 99; ++i) w.values[i] = static_cast<float>(i) - 80;
  const Bnb4Weights q = quantize_bnb4(w, Bnb4Type::nf4, false);
  EXPECT_EQ(q.packed.size(), 50u);
  EXPECT_EQ(q.absmax, (std::vector<float>{0, 18}));
  const Matrix back = bnb4_values(q);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(back.values[i], 0.0f);
  EXPECT_EQ(back.values[98], 18.0f);
  const Matrix zero{1, 64, std::vector<float>(64, 0.0f)};
  EXPECT_EQ(fp8_values(quantize_fp8(zero, Fp8Scales::channel)).values, zero.values);
  EXPECT_EQ(bnb8_values(quantize_bnb8(zero)).values, zero.values);
  EXPECT_EQ(int_values(round_to_nearest(zero, 32, {.bits = 4})).values, zero.values);
}

TEST(IntRounding, TheExampleOfTheDocs) {
  // (12 - 8) x 0.05 = 0.2; 0.05 is not a float16 number, its nearest neighbour is.
  const GroupScale g{0.05f, 8};
  EXPECT_EQ(quantize_int(0.2f, g, 15), 12);
  EXPECT_FLOAT_EQ(int_value(12, g), 0.2f);
}

TEST(IntRounding, ValuesWithinHalfAStepAndZeroKept) {
  Matrix w{2, 64, {}};
  for (int i = 0; i < 128; ++i)
    w.values.push_back(i % 7 == 0 ? 0.0f : static_cast<float>((i * 37) % 101) / 50.0f - 0.7f);
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool symmetric : {false, true}) {
      SCOPED_TRACE(bits);
      const IntWeights q = round_to_nearest(w, 32, {.bits = bits, .symmetric = symmetric});
      const Matrix back = int_values(q);
      for (size_t i = 0; i < w.values.size(); ++i) {
        const float scale = f16_to_f32(q.scale[i / 32]);
        // Ends may be cut: half a step by the upper end of symmetric codes or by the zero point,
        // and what the float16 scale lacks.
        EXPECT_LE(std::abs(back.values[i] - w.values[i]), scale * (symmetric ? 0.7f : 1.2f));
        if (w.values[i] == 0.0f) {
          EXPECT_EQ(back.values[i], 0.0f);
        }
      }
      if (symmetric) {
        EXPECT_EQ(q.zero[0], 1 << (bits - 1));
      }
    }
  }
}

TEST(IntRounding, TheFirstGptqFormatGetsNoZeroOfZero) {
  const Matrix w{1, 32, std::vector<float>(32, 0.5f)};
  EXPECT_EQ(round_to_nearest(w, 32, {.bits = 4}).zero[0], 0);
  EXPECT_EQ(round_to_nearest(w, 32, {.bits = 4, .least_zero = 1}).zero[0], 1);
}

}  // namespace
}  // namespace pagefold
