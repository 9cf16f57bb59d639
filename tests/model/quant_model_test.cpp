// Whole models in every weight format: the logits are those of the same weights in float32, which
// an independent writer gives; and what is refused before weights are read.
#include <chrono>
#include <map>
#include <set>

#include "model/golden_models.h"
#include "model/quant_folder.h"

namespace pagefold::testing {
namespace {

std::vector<float> logits_of(const std::filesystem::path& path, const std::vector<int32_t>& tokens,
                             int64_t chunk, Precision p = {}, const std::string& isa = "auto") {
  auto files = open_model(path);
  EXPECT_TRUE(files.ok()) << files.status();
  if (!files.ok()) return {};
  const auto n = static_cast<int64_t>(tokens.size());
  return ModelRunner(*files, n, p, isa, 2).run(tokens, chunk);
}

class QuantModels : public ::testing::TestWithParam<QuantForm> {};

TEST_P(QuantModels, LogitsOfTheSameWeights) {
  const QuantPair pair(GetParam(), golden_model("llama").config);
  const auto tokens = tiny_tokens(20);
  const auto expected = logits_of(pair.plain, tokens, 20);
  for (const std::string& isa : all_isas()) {
    const auto got = logits_of(pair.quantised, tokens, 20, {}, isa);
    EXPECT_LT(mean_kld(expected, got, 160), 1e-6) << isa;
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 2e-4 * std::max(1.0f, std::abs(expected[i]))) << isa << i;
    EXPECT_EQ(got, logits_of(pair.quantised, tokens, 3, {}, isa)) << isa;
  }
}

// The default path: 16-bit inputs, 16-bit cache.
TEST_P(QuantModels, DefaultPathStaysClose) {
  const QuantPair pair(GetParam(), golden_model("qwen2").config);
  const auto tokens = tiny_tokens(20);
  const auto expected = logits_of(pair.plain, tokens, 20);
  const auto got = logits_of(pair.quantised, tokens, 20, {DType::bf16, DType::bf16, false});
  EXPECT_LT(mean_kld(expected, got, 160), 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantModels, ::testing::ValuesIn(quant_forms()),
                         [](const auto& form) { return form.param.name; });

// Layers that the config leaves out stay as they are, in each way a format says so.
TEST(QuantSkips, LayersStayPlain) {
  const struct {
    const char *form, *key;
    Json value;
  } cases[] = {
      {"awq_g32", "modules_to_not_convert", {"layers.1.mlp"}},
      {"gptq4_sym", "dynamic", {{"-:.*\\.layers\\.1\\.mlp\\.", Json::object()}}},
      {"ct4_sym", "ignore", {"lm_head", "re:.*layers\\.1\\.mlp\\..*"}},
      {"fp8_tensor", "ignored_layers", {"model.layers.1.mlp"}},
      {"bnb_nf4", "llm_int8_skip_modules", {"model.layers.1.mlp"}},
      {"bnb_int8", "llm_int8_skip_modules", {"model.layers.1.mlp"}},
  };
  const auto tokens = tiny_tokens(12);
  for (const auto& c : cases) {
    QuantPair pair(form_named(c.form), golden_model("llama").config, "layers.1.mlp");
    pair.config["quantization_config"][c.key] = c.value;
    pair.write_config();
    const auto expected = logits_of(pair.plain, tokens, 12);
    EXPECT_LT(mean_kld(expected, logits_of(pair.quantised, tokens, 12), 160), 1e-6) << c.form;
  }
}

// Every format: weights that were never quantised are refused, by the first layer that the config
// does not leave out.
TEST(QuantSkips, APlainLayerThatIsNotLeftOutIsAContradiction) {
  const std::map<std::string, std::pair<const char*, const char*>> signs = {
      {"awq", {"modules_to_not_convert", "no 'model.layers.0.self_attn.q_proj.qweight' is there"}},
      {"gptq", {"modules_to_not_convert", "no 'model.layers.0.self_attn.q_proj.qweight' is there"}},
      {"ct_packed", {"ignore", "no 'model.layers.0.self_attn.q_proj.weight_packed' is there"}},
      {"ct_int8", {"ignore", "it should be I8"}},
      {"fp8", {"modules_to_not_convert", "it should be F8_E4M3"}},
      {"bnb4", {"llm_int8_skip_modules", "it should be U8"}},
      {"bnb8", {"llm_int8_skip_modules", "it should be I8"}},
  };
  std::set<QuantMethod> methods;
  for (const QuantForm& form : quant_forms()) {
    QuantPair pair(form, golden_model("llama").config, "");  // all stay plain
    const auto load = [&] {
      auto files = open_model(pair.quantised);
      if (!files.ok()) return files.status();
      methods.insert(files->quant.method);
      return load_network(*files, {}).status();
    };
    auto [key, sign] = signs.at(form.kind);
    Json& quant = pair.config["quantization_config"];
    if (quant["quant_method"] == "compressed-tensors") key = "ignore";
    const Status refused = load();
    EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << form.name << refused;
    for (const std::string part :
         {"'model.layers.0.self_attn.q_proj.weight' is plain in the file (F32)",
          "config.json: quantization_config says that 'model.layers.0.self_attn.q_proj' is", sign})
      EXPECT_NE(message_of(refused).find(part), std::string::npos) << form.name << refused;
    quant[key] = {"model.layers"};
    pair.write_config();
    EXPECT_TRUE(load().ok()) << form.name << load();
  }
  // A method that is read has a form here.
  for (int m = 0; quant_method_name(static_cast<QuantMethod>(m)) != "?"; ++m) {
    const auto method = static_cast<QuantMethod>(m);
    if (method != QuantMethod::none && method != QuantMethod::gguf)
      EXPECT_EQ(methods.count(method), 1u) << quant_method_name(method);
  }
}

TEST(QuantSkips, ASkippedLayerThatIsQuantisedIsAContradiction) {
  QuantPair pair(form_named("awq_g32"), golden_model("llama").config);
  pair.config["quantization_config"]["modules_to_not_convert"] = {"layers.1.mlp"};
  pair.write_config();
  const auto files = open_model(pair.quantised);
  ASSERT_TRUE(files.ok()) << files.status();
  const std::string message(load_network(*files, {}).status().message());
  EXPECT_NE(message.find("layers.1.mlp.gate_proj"), std::string::npos) << message;
  EXPECT_NE(message.find("qweight"), std::string::npos) << message;
}

// Settings in a file of their own, as old quantisers write them; biases of zeros beside them.
TEST(QuantFiles, SettingsBesideConfigJson) {
  for (const auto& [form, file] : {std::pair{"gptq4_asym_v1", "quantize_config.json"},
                                   std::pair{"awq_g32", "quant_config.json"}}) {
    QuantPair pair(form_named(form), golden_model("llama").config);
    Json settings = pair.config["quantization_config"];
    settings.erase("quant_method");
    pair.config.erase("quantization_config");
    pair.write_config();
    write_text(pair.quantised / file, dump_json(settings));
    const auto tokens = tiny_tokens(8);
    const auto expected = logits_of(pair.plain, tokens, 8);
    EXPECT_LT(mean_kld(expected, logits_of(pair.quantised, tokens, 8), 160), 1e-6) << form;
  }
}

Status load_with(const std::filesystem::path& path, const std::string& quantization,
                 Activations activations = Activations::automatic) {
  PF_ASSIGN(ModelFiles files, open_model(path));
  PF_ASSIGN(files.quant, choose_quantization(quantization, std::move(files.quant)));
  PF_TRY(check_activations(files, activations));
  NetworkOptions o;
  o.backend.activations = activations;
  return load_network(files, o).status();
}

TEST(QuantFiles, QuantisesAPlainCheckpointWhileLoading) {
  const QuantPair pair(form_named("awq_g32"), golden_model("llama").config);
  auto files = open_model(pair.plain);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto tokens = tiny_tokens(16);
  const auto plain = ModelRunner(*files, 16).run(tokens, 16);
  const uint64_t full = ModelRunner(*files, 16).model().weight_bytes();
  for (const auto& [word, limit, kld] :
       {std::tuple{"fp8", 0.6, 0.03}, std::tuple{"bitsandbytes", 0.5, 0.4}}) {
    auto quant = choose_quantization(word, QuantConfig());
    ASSERT_TRUE(quant.ok()) << quant.status();
    files->quant = *std::move(quant);
    ModelRunner runner(*files, 16);
    const double away = mean_kld(plain, runner.run(tokens, 16), 160);
    EXPECT_LT(away, kld) << word;
    EXPECT_GT(away, 1e-7) << word;  // it did change something
    EXPECT_LT(static_cast<double>(runner.model().weight_bytes()), limit * static_cast<double>(full))
        << word;
  }
}

TEST(QuantFiles, RefusedBeforeWeightsAreRead) {
  const QuantPair fp8(form_named("fp8_tensor"), golden_model("llama").config);
  const struct {
    std::filesystem::path path;
    const char* quantization;
    Activations activations;
    std::vector<std::string> parts;
  } cases[] = {
      {fp8.quantised, "awq", Activations::automatic, {"awq", "fp8"}},
      {fp8.quantised, "int3", Activations::automatic, {"int3", "gptq"}},
      {fp8.quantised, "auto", Activations::int8, {"int8", "fp8"}},
      {fp8.plain, "gptq", Activations::automatic, {"gptq", "not quantised"}},
      {fp8.plain, "fp8", Activations::int8, {"int8", "fp8"}},
      {fp8.plain, "bitsandbytes", Activations::int8, {"int8", "nf4"}},
  };
  for (const auto& c : cases) {
    const auto start = std::chrono::steady_clock::now();
    const Status status = load_with(c.path, c.quantization, c.activations);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
    ASSERT_FALSE(status.ok()) << c.quantization;
    for (const std::string& part : c.parts) {
      EXPECT_NE(status.message().find(part), std::string::npos)
          << "'" << part << "' is not in: " << status.message();
    }
  }
  EXPECT_TRUE(load_with(fp8.quantised, "fp8").ok());
  EXPECT_TRUE(load_with(fp8.plain, "none").ok());
}

// Tensors that only attention reads: scales of keys, values and queries have their place.
TEST(QuantFiles, CacheScalesHaveAPlace) {
  const TempFolder folder;
  const Json config = golden_model("llama").config;
  std::vector<TinyTensor> tensors = tiny_tensors(config);
  tensors.push_back({"model.layers.0.self_attn.k_scale", {1}, {0.5f}, 1});
  tensors.push_back({"model.layers.1.self_attn.q_scale", {1}, {0.5f}, 1});
  write_hf(folder.path(), config, tensors, TensorType::F32);
  const auto files = open_model(folder.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->config.kv.v_scale, (std::vector<float>{0.5f, 1.0f}));
  EXPECT_TRUE(load_network(*files, {}).ok());
}

}  // namespace
}  // namespace pagefold::testing
