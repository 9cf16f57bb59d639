// The rows of every weight format against what an independent writer put there, exactly; and what
// is refused, by the tensor's name.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <thread>

#include "base/half.h"
#include "formats/safetensors.h"
#include "model/quant/activation_choice.h"
#include "model/quant/linear_source.h"
#include "model/quant_folder.h"

namespace pagefold::testing {
namespace {

// One layer in a file in memory.
struct Layer {
  int64_t n_out, n_in;
  std::vector<float> values;
  Json config;
  SafetensorsSet file;
  Bytes bytes;
  WeightScheme scheme;

  Layer(const QuantForm& form, int64_t out, int64_t in) : n_out(out), n_in(in) {
    SafetensorsWriter w;
    QuantWriter writer(w, form);
    values = writer.add("model.layers.0.mlp.up_proj", out, in);
    config = writer.config();
    bytes = w.finish();
    auto parsed = SafetensorsSet::parse(bytes, "f.safetensors");
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    file = *std::move(parsed);
    const auto quant = parse_quant_config(config, "config.json: quantization_config");
    EXPECT_TRUE(quant.ok()) << quant.status();
    const auto found = quant->scheme_of("model.layers.0.mlp.up_proj");
    EXPECT_TRUE(found.ok()) << found.status();
    scheme = *found;
  }
  Result<std::unique_ptr<LinearSource>> source() const {
    return make_linear_source(scheme, "config.json", "model.layers.0.mlp.up_proj", n_out, n_in,
                              [this](const std::string& name) { return file.find(name); });
  }
};

class Sources : public ::testing::TestWithParam<QuantForm> {};

// Rows in the file's order of inputs.
std::vector<float> ordered(const LinearSource& source, int64_t row) {
  const auto n = static_cast<size_t>(source.n_in());
  std::vector<float> packed(n), out(n);
  source.row_f32(row, packed.data());
  const auto order = source.quant()->order;
  for (size_t j = 0; j < n; ++j) out[order.empty() ? j : static_cast<size_t>(order[j])] = packed[j];
  return out;
}

// 96 inputs: no multiple of the 64 weights of a bitsandbytes block; 160 outputs: three panels.
TEST_P(Sources, RowsAreExact) {
  for (const auto& [n_out, n_in] : {std::pair<int64_t, int64_t>{160, 64}, {32, 96}}) {
    const Layer layer(GetParam(), n_out, n_in);
    const auto source = layer.source();
    ASSERT_TRUE(source.ok()) << source.status();
    const LinearSource& s = **source;
    ASSERT_NE(s.quant(), nullptr);
    EXPECT_TRUE(s.quant()->group == 16 || s.quant()->group % 32 == 0);
    EXPECT_EQ(n_in % s.quant()->group, 0);
    for (int64_t row = 0; row < n_out; ++row) {
      const auto begin = layer.values.begin() + row * n_in;
      ASSERT_EQ(ordered(s, row), std::vector<float>(begin, begin + n_in)) << row;
    }
    EXPECT_TRUE(s.after_read().ok());
  }
}

// What is said of a checkpoint before its weights are read is what its layers resolve to.
TEST_P(Sources, ActivationsAreChosenAsLoadingDoes) {
  const Layer layer(GetParam(), 64, 64);
  const auto source = layer.source();
  ASSERT_TRUE(source.ok()) << source.status();
  const auto quant = parse_quant_config(layer.config, "config.json");
  ASSERT_TRUE(quant.ok()) << quant.status();
  for (const auto wanted : {Activations::automatic, Activations::bits16, Activations::int8}) {
    const auto want = resolve_activations(*(*source)->quant(), wanted);
    const auto got = choose_activations(*quant, {}, wanted);
    ASSERT_EQ(got.ok(), want.ok()) << got.status() << want.status();
    if (want.ok()) {
      EXPECT_EQ(*got, *want);
    }
  }
}

TEST_P(Sources, IntegersFitWhatIsSaidOfThem) {
  const Layer layer(GetParam(), 64, 64);
  const auto source = layer.source();
  ASSERT_TRUE(source.ok()) << source.status();
  const QuantSource& quant = *(*source)->quant();
  const bool a16 =
      layer.config["quant_method"] != "compressed-tensors" || GetParam().kind != "ct_int8";
  EXPECT_EQ(quant.wants_16bit, a16);
  std::vector<int8_t> q(64);
  std::vector<float> scale(64 / static_cast<size_t>(quant.group)), zero(scale.size(), 0);
  for (int64_t row = 0; row < 64; ++row) {
    (*source)->row_quant(row, q.data(), scale.data(), quant.has_zero ? zero.data() : nullptr);
    for (const int8_t v : q) {
      ASSERT_TRUE(quant.bits == 8 || (v >= 0 && v < 16)) << row;
    }
    for (const float z : zero) ASSERT_TRUE(z >= -128 && z <= 255 && z == std::round(z));
    for (const float s : scale) {
      ASSERT_TRUE(!quant.scale_f16 || f16_to_f32(f32_to_f16(s)) == s);
    }
  }
}

// Rows may be read by several threads, in any order.
TEST_P(Sources, ThreadsReadTheSame) {
  const Layer layer(GetParam(), 160, 64);
  const auto source = layer.source();
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<float> read(layer.values.size());
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t row = 159 - t; row >= 0; row -= 3) {
        const auto values = ordered(**source, row);
        std::copy(values.begin(), values.end(), read.begin() + row * 64);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(read, layer.values);
}

INSTANTIATE_TEST_SUITE_P(Formats, Sources, ::testing::ValuesIn(quant_forms()),
                         [](const auto& form) { return form.param.name; });

// One tensor of a layer replaced or left out.
struct Damage {
  const char* form;
  std::string part;                                              // below the module
  std::function<void(Json& header_entry, Bytes& bytes)> change;  // null: the tensor is missing
  std::vector<std::string> expected;                             // in the message
};

Status load_damaged(const Damage& d) {
  const Layer layer(form_named(d.form), 32, 64);
  SafetensorsWriter w;
  for (const TensorInfo& t : layer.file.tensors()) {
    const bool hit = t.name == "model.layers.0.mlp.up_proj." + d.part;
    if (hit && !d.change) continue;
    Json entry = {{"type", static_cast<int>(t.type)}, {"shape", t.shape}};
    Bytes bytes(t.data.begin(), t.data.end());
    if (hit) d.change(entry, bytes);
    w.add_tensor(t.name, static_cast<TensorType>(entry["type"].get<int>()),
                 entry["shape"].get<std::vector<int64_t>>(), bytes);
  }
  const Bytes bytes = w.finish();
  PF_ASSIGN(const SafetensorsSet file, SafetensorsSet::parse(bytes, "f.safetensors"));
  PF_ASSIGN(const auto source,
            make_linear_source(layer.scheme, "config.json", "model.layers.0.mlp.up_proj", 32, 64,
                               [&](const std::string& name) { return file.find(name); }));
  std::vector<float> row(64);
  for (int64_t r = 0; r < 32; ++r) source->row_f32(r, row.data());
  return source->after_read();
}

void set_half(Bytes& bytes, size_t i, uint16_t bits) { std::memcpy(&bytes[i * 2], &bits, 2); }
void set_word(Bytes& bytes, size_t i, uint32_t bits) { std::memcpy(&bytes[i * 4], &bits, 4); }
void reshape(Json& entry, Bytes& bytes, const std::vector<int64_t>& shape, size_t size) {
  entry["shape"] = shape;
  bytes.resize(size);
}

const auto huge32 = [](Json&, Bytes& b) { set_word(b, 0, 0xff7fffff); };
constexpr std::nullptr_t missing = nullptr;
const auto nan16 = [](Json&, Bytes& b) { set_half(b, 3, 0x7e00); };
const auto inf32 = [](Json&, Bytes& b) { set_word(b, 0, 0x7f800000); };
const auto cut = [](Json& e, Bytes& b) {
  reshape(e, b, {1}, b.size() / e["shape"][0].get<size_t>() / e["shape"][1].get<size_t>());
};
const auto text = [](std::string_view t) {
  return [t](Json& e, Bytes& b) {
    b = to_bytes(t);
    e["shape"] = {b.size()};
  };
};

void expect_refusals(std::span<const Damage> all) {
  for (const Damage& d : all) {
    const Status status = load_damaged(d);
    ASSERT_FALSE(status.ok()) << d.form << " " << d.part;
    for (const std::string& part : d.expected) {
      EXPECT_NE(std::string(status.message()).find(part), std::string::npos)
          << d.form << " " << d.part << ": '" << part << "' is not in: " << status.message();
    }
  }
}

TEST(SourceRefusals, ColumnsNameTheTensor) {
  const Damage all[] = {
      {"awq_g32", "qweight", missing, {"up_proj.qweight", "missing"}},
      {"awq_g32", "scales", missing, {"up_proj.scales", "missing", "config.json"}},
      {"awq_g32", "qzeros", missing, {"up_proj.qzeros", "missing"}},
      {"awq_g32", "scales", nan16, {"up_proj.scales", "finite", "3"}},
      {"awq_g32", "qweight", cut, {"up_proj.qweight", "[1]", "[64, 4]", "f.safetensors"}},
      {"awq_g32", "qzeros", cut, {"up_proj.qzeros", "[2, 4]"}},
      {"awq_g32",
       "scales",
       [](Json& e, Bytes& b) {
         reshape(e, b, {4, 32}, b.size() * 2);
       },
       {"up_proj.scales", "[4, 32]", "[2, 32]"}},
      {"awq_g32",
       "qweight",
       [](Json& e, Bytes&) { e["type"] = static_cast<int>(TensorType::F32); },
       {"up_proj.qweight", "F32", "I32"}},
      {"gptq4_asym_v2_act", "g_idx", missing, {"up_proj.g_idx", "missing"}},
      {"gptq4_asym_v2_act",
       "g_idx",
       [](Json&, Bytes& b) { set_word(b, 5, 2); },
       {"up_proj.g_idx", "input 5", "group 2"}},
      {"gptq4_asym_v2_act",
       "g_idx",
       [](Json&, Bytes& b) { set_word(b, 5, 0xffffffff); },
       {"up_proj.g_idx", "input 5"}},
      {"gptq4_asym_v2_act",
       "g_idx",
       [](Json&, Bytes& b) { std::fill(b.begin(), b.end(), std::byte{}); },
       {"up_proj.g_idx", "64 inputs"}},
      {"gptq3_asym", "scales", nan16, {"up_proj.scales"}},
  };
  expect_refusals(all);
}

TEST(SourceRefusals, RowsNameTheTensor) {
  const Damage all[] = {
      {"ct4_asym_bf16", "weight_zero_point", missing, {"up_proj.weight_zero_point"}},
      {"ct4_asym_bf16", "weight_scale", cut, {"up_proj.weight_scale", "[1]"}},
      {"ct4_sym", "weight_scale", missing, {"up_proj.weight_scale"}},
      {"ct4_sym",
       "weight_shape",
       [](Json&, Bytes& b) { b[0] = std::byte{33}; },
       {"up_proj.weight_shape", "33"}},
      {"ct4_act", "weight_g_idx", missing, {"up_proj.weight_g_idx"}},
      {"w8a8_channel", "weight_scale", missing, {"up_proj.weight_scale"}},
      {"w8a8_tensor_asym", "weight_zero_point", missing, {"up_proj.weight_zero_point"}},
      {"fp8_tensor", "weight_scale", missing, {"up_proj.weight_scale"}},
      {"fp8_tensor", "weight_scale", inf32, {"up_proj.weight_scale", "finite"}},
      {"fp8_tensor",
       "input_scale",
       [](Json&, Bytes& b) { set_word(b, 0, 0); },
       {"up_proj.input_scale", "positive"}},
      {"fp8_tensor",
       "weight",
       [](Json&, Bytes& b) { b[130] = std::byte{0xff}; },
       {"up_proj.weight", "row 2", "not a number"}},
      {"fp8_tensor", "weight_scale", huge32, {"up_proj.weight_scale", "number 0", "-3.4", "65504"}},
      {"ct4_asym_bf16",
       "weight_scale",
       [](Json&, Bytes& b) { set_half(b, 2, 0x7f7f); },
       {"up_proj.weight_scale", "number 2", "65504"}},
      {"fp8_block", "weight_scale_inv", cut, {"up_proj.weight_scale_inv", "[2, 2]"}},
  };
  expect_refusals(all);
}

TEST(SourceRefusals, BitsandbytesNamesTheTensor) {
  const Damage all[] = {
      {"bnb_nf4", "weight.quant_state.bitsandbytes__nf4", missing, {"quant_state", "missing"}},
      {"bnb_nf4", "weight.absmax", missing, {"up_proj.weight.absmax"}},
      {"bnb_nf4", "weight.quant_map", missing, {"up_proj.weight.quant_map"}},
      {"bnb_nf4", "weight.absmax", inf32, {"up_proj.weight.absmax", "finite"}},
      {"bnb_nf4",
       "weight",
       [](Json& e, Bytes& b) {
         reshape(e, b, {7, 1}, 7);
       },
       {"up_proj.weight", "7 bytes", "1024"}},
      {"bnb_nf4", "weight.quant_state.bitsandbytes__nf4", text("{"), {"quant_state"}},
      {"bnb_nf4",
       "weight.quant_state.bitsandbytes__nf4",
       text(R"({"quant_type":"nf4","blocksize":64,"shape":[64,32]})"),
       {"quant_state", "32 x 64"}},
      {"bnb_nf4",
       "weight.quant_state.bitsandbytes__nf4",
       text(R"({"quant_type":"fp4","blocksize":64,"shape":[32,64]})"),
       {"quant_state", "fp4"}},
      {"bnb_nf4_nested", "weight.nested_absmax", missing, {"nested_absmax"}},
      {"bnb_nf4_nested", "weight.nested_quant_map", missing, {"nested_quant_map"}},
      {"bnb_int8", "SCB", missing, {"up_proj.SCB"}},
      {"bnb_int8", "SCB", huge32, {"up_proj.SCB", "65504"}},
      {"bnb_nf4", "weight.quant_map", huge32, {"up_proj.weight.quant_map", "65504"}},
      {"bnb_nf4_nested", "weight.nested_absmax", huge32, {"nested_absmax", "65504"}},
      {"bnb_int8",
       "weight_format",
       [](Json&, Bytes& b) { b[0] = std::byte{1}; },
       {"up_proj.weight_format", "row by row"}},
  };
  expect_refusals(all);
}

TEST(SourceRefusals, SidesThatDoNotFit) {
  const auto make = [](std::string_view form, int64_t group, int64_t n_out, int64_t n_in) {
    QuantForm f = form_named(form);
    const Layer layer(f, 32, 64);
    WeightScheme scheme = layer.scheme;
    scheme.group = group;
    return std::string(make_linear_source(scheme, "config.json", "model.layers.0.mlp.up_proj",
                                          n_out, n_in,
                                          [&](const std::string& n) { return layer.file.find(n); })
                           .status()
                           .message());
  };
  EXPECT_NE(make("awq_g32", 48, 32, 64).find("group size 48 does not divide the 64 inputs"),
            std::string::npos);
  EXPECT_NE(make("gptq4_sym", 128, 32, 64).find("group size 128 does not divide"),
            std::string::npos);
  EXPECT_NE(make("ct4_sym", 48, 32, 64).find("group size 48"), std::string::npos);
  EXPECT_NE(make("awq_g32", 8, 32, 64).find("up_proj': groups of 8"), std::string::npos);
  EXPECT_NE(make("awq_g32", 32, 32, 48).find("multiple of 32"), std::string::npos);
  EXPECT_NE(make("awq_g32", 32, 30, 64).find("eights"), std::string::npos);
  EXPECT_NE(make("gptq3_asym", 32, 40, 64).find("32s"), std::string::npos);
}

// Codes without anything that says what they stand for: no config, or one that leaves the layer
// out.
TEST(SourceRefusals, CodesThatTheConfigDoesNotMention) {
  for (const char* form : {"fp8_tensor", "w8a8_channel", "bnb_int8"}) {
    const Layer layer(form_named(form), 32, 64);
    for (const std::string_view where : {"", "config.json: quantization_config"}) {
      const auto source =
          make_linear_source({}, where, "model.layers.0.mlp.up_proj", 32, 64,
                             [&](const std::string& name) { return layer.file.find(name); });
      ASSERT_FALSE(source.ok());
      const std::string message = message_of(source.status());
      for (const char* part : {"up_proj.weight", "is quantised", "quantization_config"})
        EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
}

// What a plain matrix becomes while it loads.
TEST(QuantisingSources, Fp8PerTensorAndNf4) {
  SafetensorsWriter w;
  std::vector<float> values;
  for (int i = 0; i < 16 * 96; ++i) values.push_back(std::sin(static_cast<float>(i)) * 3);
  values[100] = -4.48f;
  w.add_tensor("lin.weight", TensorType::F32, {16, 96}, quantize(TensorType::F32, values));
  values[7] = INFINITY;
  w.add_tensor("bad.weight", TensorType::F32, {16, 96}, quantize(TensorType::F32, values));
  const Bytes bytes = w.finish();
  const auto file = SafetensorsSet::parse(bytes, "f.safetensors");
  const FindTensor find = [&](const std::string& name) { return file->find(name); };
  const auto make = [&](WeightLayout layout, const char* module) {
    return make_linear_source({.layout = layout}, "--quantization", module, 16, 96, find);
  };
  values[7] = std::sin(7.0f) * 3;
  std::vector<float> row(96);
  const auto fp8 = make(WeightLayout::to_fp8, "lin");
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  const auto nf4 = make(WeightLayout::to_nf4, "lin");
  ASSERT_TRUE(nf4.ok()) << nf4.status();
  EXPECT_EQ((*nf4)->quant()->group, 32);  // 64 does not divide 96
  for (int64_t r = 0; r < 16; ++r) {
    (*fp8)->row_f32(r, row.data());
    for (size_t k = 0; k < 96; ++k) {
      const float x = values[static_cast<size_t>(r) * 96 + k];
      // Half a step of 3 bits, or of the smallest number.
      ASSERT_NEAR(row[k], x, std::max(std::abs(x) / 16, 0.01f / 1024)) << r << " " << k;
    }
    (*nf4)->row_f32(r, row.data());
    for (size_t k = 0; k < 96; ++k) {
      const float x = values[static_cast<size_t>(r) * 96 + k];
      ASSERT_NEAR(row[k], x, 4.48f * 0.153f) << r << " " << k;  // half the widest gap
    }
  }
  (*fp8)->row_f32(1, row.data());
  EXPECT_FLOAT_EQ(row[4], -4.48f);  // the largest keeps its value
  EXPECT_NE(make(WeightLayout::to_fp8, "bad").status().message().find("bad.weight"),
            std::string::npos);
  const auto bad = make(WeightLayout::to_nf4, "bad");
  (*bad)->row_f32(0, row.data());
  EXPECT_NE((*bad)->after_read().message().find("bad.weight"), std::string::npos);
}

}  // namespace
}  // namespace pagefold::testing
