// Every weight format against its worked cases, bit for bit.
#include "formats/weight_cases.h"

#include <bit>
#include <cmath>
#include <numeric>

#include "formats/quant/awq.h"
#include "formats/quant/bitsandbytes.h"
#include "formats/quant/compressed_tensors.h"
#include "formats/quant/fp8.h"
#include "formats/quant/gptq.h"

namespace pagefold::testing {
namespace {

using Words = std::vector<uint32_t>;
using Halves = std::vector<uint16_t>;
using Ints = std::vector<int>;

TEST(WeightCases, Awq) {
  const Json file = weight_cases("awq_pack.json");
  for (const Json& c : file["cases"]) {
    const std::string name = c["name"].get<std::string>();
    const Words qweight = list_of<uint32_t>(c["qweight_hex"]);
    const Words qzeros = list_of<uint32_t>(c["qzeros_hex"]);
    const Halves scales = list_of<uint16_t>(c["scales_f16_bits_GxN"]);
    const AwqMatrix m{.qweight = bytes_of(qweight),
                      .qzeros = bytes_of(qzeros),
                      .scales = bytes_of(scales),
                      .n_in = c["in_features"].get<int64_t>(),
                      .n_out = c["out_features"].get<int64_t>(),
                      .group = c["group_size"].get<int64_t>()};
    const auto n_in = static_cast<size_t>(m.n_in), groups = static_cast<size_t>(m.n_in / m.group);
    std::vector<int8_t> q(n_in * static_cast<size_t>(m.n_out)), part(n_in * 8);
    awq_columns(m, 0, m.n_out, q.data());
    awq_columns(m, 8, 8, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), q.begin() + static_cast<int64_t>(8 * n_in)));
    const Ints integers = list_of<int>(c["int_weight_KxN"]);
    const Ints zeros = list_of<int>(c["int_zeros_GxN"]);
    const auto values = list_of<double>(c["dequant_KxN_exact"]);
    std::vector<float> scale(groups), zero(groups);
    for (size_t n = 0; n < static_cast<size_t>(m.n_out); ++n) {
      awq_scales(m, static_cast<int64_t>(n), scale.data(), zero.data());
      for (size_t k = 0; k < n_in; ++k) {
        const size_t at = k * static_cast<size_t>(m.n_out) + n, g = k * groups / n_in;
        ASSERT_EQ(q[n * n_in + k], integers[at]) << name;
        ASSERT_EQ(zero[g], zeros[g * static_cast<size_t>(m.n_out) + n]) << name;
        ASSERT_EQ(double{(q[n * n_in + k] - zero[g]) * scale[g]}, values[at]) << name;
      }
    }
  }
}

void check_gptq(const Json& c, bool v1) {
  SCOPED_TRACE(c["name"].get<std::string>() + (v1 ? " v1" : " v2"));
  const Words qweight = list_of<uint32_t>(c["qweight_hex"]);
  const Words qzeros = list_of<uint32_t>(c[v1 ? "qzeros_v1_hex" : "qzeros_v2_hex"]);
  const Halves scales = list_of<uint16_t>(c["scales_f16_bits_GxN"]);
  const auto g_idx = list_of<int32_t>(c["g_idx"]);
  const int64_t group = c["group_size"].get<int64_t>();
  const GptqMatrix m{.qweight = bytes_of(qweight),
                     .qzeros = bytes_of(qzeros),
                     .scales = bytes_of(scales),
                     .bits = c["bits"].get<int>(),
                     .zeros_minus_one = v1,
                     .n_in = c["in_features"].get<int64_t>(),
                     .n_out = c["out_features"].get<int64_t>(),
                     .groups = c["in_features"].get<int64_t>() / group};
  const auto n_in = static_cast<size_t>(m.n_in), n_out = static_cast<size_t>(m.n_out);
  std::vector<int8_t> q(n_in * n_out);
  gptq_columns(m, 0, m.n_out, q.data());
  const int offset = m.bits == 8 ? 128 : 0;
  const Ints integers = list_of<int>(c["int_weight_KxN"]);
  const Ints zeros = list_of<int>(c["int_zeros_true_GxN"]);
  const auto values = list_of<double>(c["dequant_KxN_exact"]);
  std::vector<float> scale(static_cast<size_t>(m.groups)), zero(scale.size());
  for (size_t n = 0; n < n_out; ++n) {
    gptq_scales(m, static_cast<int64_t>(n), scale.data(), zero.data());
    for (size_t g = 0; g < scale.size(); ++g) ASSERT_EQ(zero[g] + offset, zeros[g * n_out + n]);
    for (size_t k = 0; k < n_in; ++k) {
      const auto g = static_cast<size_t>(g_idx[k]);
      ASSERT_EQ(q[n * n_in + k] + offset, integers[k * n_out + n]);
      ASSERT_EQ(double{(q[n * n_in + k] - zero[g]) * scale[g]}, values[k * n_out + n]);
    }
  }
  const auto order = group_order(bytes_of(g_idx), m.n_in, group);
  ASSERT_TRUE(order.ok()) << order.status();
  const Ints expected = c.contains("perm_stable_argsort_g_idx")
                            ? list_of<int>(c["perm_stable_argsort_g_idx"])
                            : Ints();
  EXPECT_EQ(Ints(order->begin(), order->end()), expected);
}

TEST(WeightCases, Gptq) {
  const Json file = weight_cases("gptq_pack.json");
  for (const Json& c : file["cases"]) {
    check_gptq(c, true);
    check_gptq(c, false);
  }
}

TEST(WeightCases, GptqOrderRefusesDamage) {
  const std::vector<int32_t> beyond = {0, 1, 2, 1}, negative = {0, -1, 1, 1}, uneven = {0, 0, 0, 1};
  for (const auto& bad : {beyond, negative, uneven})
    EXPECT_FALSE(group_order(bytes_of(bad), 4, 2).ok());
}

TEST(WeightCases, CompressedTensors) {
  const Json file = weight_cases("gptq_pack.json");
  for (const Json& c : file["compressed_tensors"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const Words packed = list_of<uint32_t>(c["weight_packed_hex"]);
    const Halves scales = list_of<uint16_t>(c["weight_scale_f16_bits"]);
    const bool asymmetric = c.contains("weight_zero_point_packed_hex");
    const Words zeros = asymmetric ? list_of<uint32_t>(c["weight_zero_point_packed_hex"]) : Words();
    const auto n_in = c["in_features"].get<size_t>(), n_out = c["out_features"].get<size_t>();
    const size_t groups = n_in / c["group_size"].get<size_t>();
    const Ints integers = list_of<int>(c["int_weight_NxK_signed"]);
    const auto values = list_of<double>(c["dequant_NxK_exact"]);
    std::vector<int8_t> q(n_in);
    std::vector<float> zero(groups, 8);
    for (size_t n = 0; n < n_out; ++n) {
      const auto row = static_cast<int64_t>(n);
      ct_unpack_row(bytes_of(packed), row, static_cast<int64_t>(n_in), 4, q.data());
      if (asymmetric)
        ct_zero_points(bytes_of(zeros), row, static_cast<int64_t>(groups), 4, zero.data());
      for (size_t k = 0; k < n_in; ++k) {
        const size_t g = k * groups / n_in;
        const float scale = f16_to_f32(scales[n * groups + g]);
        ASSERT_EQ(q[k] - 8, integers[n * n_in + k]);
        ASSERT_EQ(double{(q[k] - zero[g]) * scale}, values[n * n_in + k]);
      }
    }
  }
}

// 8 bits by hand: 200 and 128 packed with the offset stand for 72 and 0; zero points likewise.
TEST(WeightCases, CompressedTensors8Bit) {
  const Words packed = {0x01ff80c8}, zeros = {0x7fff8000};
  std::vector<int8_t> q(4);
  ct_unpack_row(bytes_of(packed), 0, 4, 8, q.data());
  EXPECT_EQ(Ints(q.begin(), q.end()), (Ints{72, 0, 127, -127}));
  const Ints expected = {-128, 0, 127, -1};
  for (int n = 0; n < 4; ++n) {
    float zero = NAN;
    ct_zero_points(bytes_of(zeros), n, 1, 8, &zero);
    EXPECT_EQ(zero, expected[static_cast<size_t>(n)]);
  }
}

TEST(WeightCases, Fp8) {
  const Json file = weight_cases("fp8.json");
  const auto table = list_of<double>(file["e4m3fn"]["decode_table"]);
  ASSERT_EQ(table.size(), 256u);
  for (size_t c = 0; c < 256; ++c) {
    const float v = fp8_e4m3_value(static_cast<uint8_t>(c));
    ASSERT_EQ(std::isnan(v), std::isnan(table[c])) << c;
    if (std::isnan(v)) {
      EXPECT_TRUE(fp8_e4m3_is_nan(static_cast<uint8_t>(c)));
      continue;
    }
    ASSERT_EQ(v, table[c]) << c;
    ASSERT_EQ(std::signbit(v), c >= 128) << c;
    ASSERT_EQ(fp8_e4m3_code(v), c) << c;
  }
  for (const Json& c : file["e4m3fn"]["encode_cases"]) {
    const auto x = list_of<double>(c["x"])[0];
    const auto code = list_of<uint32_t>(c["saturate"])[0];
    // A NaN's sign is its own affair.
    const int mask = std::isnan(x) ? 0x7f : 0xff;
    EXPECT_EQ(fp8_e4m3_code(static_cast<float>(x)) & mask, static_cast<int>(code) & mask) << x;
  }
}

// Nearest, ties to the even code: between any two neighbours.
TEST(WeightCases, Fp8RoundsToNearest) {
  for (int c = 0; c < 0x7e; ++c) {
    const float low = fp8_e4m3_value(static_cast<uint8_t>(c));
    const float high = fp8_e4m3_value(static_cast<uint8_t>(c + 1)), middle = (low + high) / 2;
    EXPECT_EQ(fp8_e4m3_code(middle), c + c % 2);
    EXPECT_EQ(fp8_e4m3_code(std::nextafter(middle, 0.0f)), c);
    EXPECT_EQ(fp8_e4m3_code(std::nextafter(middle, 500.0f)), c + 1);
  }
}

TEST(WeightCases, Fp8Weights) {
  const Json file = weight_cases("fp8.json");
  for (const auto& [name, c] : file["weight_scale_examples"].items()) {
    if (!c.is_object()) continue;
    const auto codes = list_of<uint8_t>(c["weight_codes"]);
    const auto scale = list_of<float>(c["scale"]);
    const auto values = list_of<double>(c["dequant"]);
    ASSERT_EQ(codes.size(), 16u);
    for (size_t i = 0; i < 16; ++i) {
      const size_t row = i / 4, column = i % 4;
      const size_t s = scale.size() == 1                 ? 0
                       : name.starts_with("per_channel") ? row
                                                         : row / 2 * 2 + column / 2;
      EXPECT_EQ(double{fp8_e4m3_value(codes[i])} * double{scale[s]}, values[i]) << name << i;
    }
  }
}

std::vector<float> from_bits(const Json& hex) {
  std::vector<float> out;
  for (const uint32_t bits : list_of<uint32_t>(hex)) out.push_back(std::bit_cast<float>(bits));
  return out;
}

TEST(WeightCases, Bitsandbytes4Bit) {
  const Json file = weight_cases("nf4.json");
  const auto nested_map = base64_of<float>(file["nested_quant_map_f32"]);
  for (const Json& c : file["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::string state_text = c["quant_state_u8"].get<std::string>();
    const auto state =
        parse_bnb4_state(std::as_bytes(std::span(state_text.data(), state_text.size())));
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->blocksize, c["blocksize"].get<int64_t>());
    EXPECT_EQ(state->shape, list_of<int64_t>(c["shape"]));
    ASSERT_TRUE(state->nested);
    const auto map = from_bits(c["quant_map_f32_hex"]);
    const auto& table = state->quant_type == "nf4" ? nf4_table() : fp4_table();
    for (size_t i = 0; i < 16; ++i)
      EXPECT_EQ(std::bit_cast<uint32_t>(table[i]), std::bit_cast<uint32_t>(map[i])) << i;
    const auto codes = list_of<uint8_t>(c["absmax_u8"]);
    const auto nested = list_of<float>(c["nested_absmax_f32"]);
    std::vector<float> absmax(codes.size());
    const NestedAbsmax a{bytes_of(codes), bytes_of(nested_map), bytes_of(nested),
                         state->nested_blocksize, state->nested_offset};
    bnb4_nested_absmax(a, 0, static_cast<int64_t>(codes.size()), absmax.data());
    EXPECT_EQ(absmax, list_of<float>(c["absmax_restored_f32"]));
    const auto packed = base64_of<uint8_t>(c["packed_weight_u8"]);
    const auto values = base64_of<float>(c["dequant_f32_flat_double_quant"]);
    std::vector<int8_t> q(values.size());
    bnb4_codes(bytes_of(packed), 0, static_cast<int64_t>(q.size()), q.data());
    for (size_t i = 0; i < q.size(); ++i)
      ASSERT_EQ(map[static_cast<size_t>(q[i])] * absmax[i / 64], values[i]) << i;
  }
}

// The codes of the case were made from its source by the nearest table entry.
TEST(WeightCases, Nf4Encoding) {
  const Json file = weight_cases("nf4.json");
  const auto source = base64_of<float>(file["source"]);
  const Json& c = file["cases"][0];
  const auto absmax = list_of<float>(c["absmax_before_double_quant_f32"]);
  const auto packed = base64_of<uint8_t>(c["packed_weight_u8"]);
  std::vector<int8_t> expected(source.size());
  bnb4_codes(bytes_of(packed), 0, static_cast<int64_t>(source.size()), expected.data());
  for (size_t i = 0; i < source.size(); ++i)
    ASSERT_EQ(nf4_code(source[i] / absmax[i / 64]), expected[i]) << i;
}

TEST(WeightCases, Bitsandbytes8Bit) {
  const Json c = weight_cases("nf4.json")["int8"];
  const auto scb = list_of<float>(c["SCB"]);
  const auto q = base64_of<int8_t>(c["weight_i8"]);
  const auto values = base64_of<double>(c["dequant_f64"]);
  const size_t n_in = q.size() / scb.size();
  for (size_t i = 0; i < q.size(); ++i) {
    const float scale = bnb8_scale(scb[i / n_in]);
    ASSERT_NEAR(double{static_cast<float>(q[i]) * scale}, values[i], std::abs(values[i]) * 2e-7);
  }
}

TEST(WeightCases, QuantStateRefusesDamage) {
  const auto parse = [](std::string_view text) {
    return parse_bnb4_state(std::as_bytes(std::span(text.data(), text.size()))).status();
  };
  EXPECT_TRUE(parse(R"({"quant_type":"nf4","blocksize":64,"shape":[2,64]})").ok());
  for (const char* bad :
       {"", "[]", "{", R"({"quant_type":"int5","blocksize":64,"shape":[2,64]})",
        R"({"quant_type":"nf4","blocksize":0,"shape":[2,64]})",
        R"({"quant_type":"nf4","blocksize":48,"shape":[2,64]})",
        R"({"quant_type":"nf4","blocksize":64})",
        R"({"quant_type":"nf4","blocksize":64,"shape":[-2,64]})",
        R"({"quant_type":"nf4","blocksize":64,"shape":[2,64],"nested_blocksize":256})",
        R"({"quant_type":"nf4","blocksize":64,"shape":[2,64],"nested_offset":1})"}) {
    EXPECT_FALSE(parse(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace pagefold::testing
