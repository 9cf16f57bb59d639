// Every weight format with every --dtype, --activations, KV type and policy: it generates, or it is
// refused before weights are read, with the reason (D12). Which combinations run is generated: all
// pairs of any two settings occur, checked below.
#include <chrono>
#include <set>

#include "engine/compression.h"

#include "engine/tiny_engine.h"
#include "model/quant_folder.h"

namespace pagefold::testing {
namespace {

constexpr const char* kKvTypes[] = {"float32",  "float16", "bfloat16", "fp8_e4m3",
                                    "fp8_e5m2", "int8",    "int4"};
constexpr DType kDTypes[] = {DType::f16, DType::bf16, DType::f32};
constexpr const char* kActivations[] = {"auto", "16", "int8"};
constexpr int kHeadDims[] = {64, 80, 96, 128, 256};

// A folder in a format, or a plain one with --quantization.
struct Weights {
  std::string name, quantization = "auto";
  const QuantForm* form = nullptr;
};

std::vector<Weights> every_format() {
  static const std::vector<QuantForm> forms = quant_forms();
  std::vector<Weights> out = {{"plain"}, {"to_fp8", "fp8"}, {"to_nf4", "bitsandbytes"}};
  for (const QuantForm& f : forms) out.push_back({f.name, "auto", &f});
  return out;
}

Json config_of(int head_dim) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 160},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", head_dim},
          {"max_position_embeddings", 512},
          {"tie_word_embeddings", true}};
}

struct PrecisionChoice {
  DType dtype;
  std::string activations, kv, kvv;
  KvOptions policy;
  std::set<std::string> settings;  // for the pairs that occurred
};

// As loading does before it reads a weight.
Result<EngineConfig> check(const ModelFiles& files, const PrecisionChoice& c) {
  PF_ASSIGN(const Activations wanted, parse_activations(c.activations));
  PF_TRY(check_activations(files, wanted));
  PF_ASSIGN(const KvFormat format, resolve_kv_format({c.kv, c.kvv, 0}, c.dtype, files.config.kv));
  EngineOptions options;
  options.kv = c.policy;
  options.kv_cache_memory_bytes = 8 << 20;
  const ModelShape shape = model_shape(files.config);
  PF_ASSIGN(const EngineConfig config, resolve_config(options, shape, format, uint64_t{1} << 30));
  PF_TRY(resolve_kv_plan({}, config, kv_model(shape, config.block_size), 0).status());
  return config;
}

void generate(const ModelFiles& files, const PrecisionChoice& c, const EngineConfig& config) {
  NetworkOptions o;
  o.backend = {.threads = 1, .dtype = c.dtype, .activations = *parse_activations(c.activations)};
  auto model = load_network(files, o);
  ASSERT_TRUE(model.ok()) << model.status();
  auto engine = EngineCore::start(**model, config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const Answer a = answer(**engine, compressed(prompt_of(60, 3, 160), 10, c.policy));
  ASSERT_EQ(a.result.reason, FinishReason::length) << a.result.error;
  for (const TokenEvent& e : a.events) ASSERT_TRUE(std::isfinite(e.logprobs[0].logprob));
  const uint64_t block = config.kv_format.slot_bytes(files.config.shape.head_dim) * 16;
  EXPECT_EQ(a.result.kv.bytes, static_cast<uint64_t>(a.result.kv.blocks) * block);
}

std::vector<PrecisionChoice> combinations(size_t format) {
  const std::vector<KvOptions> policies = every_policy();
  std::vector<PrecisionChoice> out;
  constexpr size_t n = std::size(kKvTypes);
  for (size_t k = 0; k < n; ++k) {
    PrecisionChoice c;
    const size_t p = (5 * format + 4 * k) % policies.size(), d = (format + k) % 3,
                 a = (format / 3 + k) % 3;
    c.dtype = kDTypes[d];
    c.activations = kActivations[a];
    c.kv = kKvTypes[k];
    c.kvv = k % 2 == format % 2 ? "auto" : kKvTypes[(format + k) % n];
    c.policy = policies[p];
    c.settings = {fmt::format("format {}", format), fmt::format("dtype {}", d),
                  fmt::format("activations {}", a), fmt::format("kv {}", k),
                  fmt::format("policy {}", p)};
    out.push_back(std::move(c));
  }
  return out;
}

TEST(PrecisionMatrix, EveryFormatGeneratesOrIsRefusedAtOnce) {
  const auto formats = every_format();
  int ran = 0, refused = 0;
  for (size_t f = 0; f < formats.size(); ++f) {
    const Json config = config_of(kHeadDims[f % std::size(kHeadDims)]);
    const QuantPair pair(formats[f].form ? *formats[f].form : form_named("awq_g32"), config);
    auto files = open_model(formats[f].form ? pair.quantised : pair.plain);
    ASSERT_TRUE(files.ok()) << files.status();
    auto quant = choose_quantization(formats[f].quantization, std::move(files->quant));
    ASSERT_TRUE(quant.ok()) << quant.status();
    files->quant = *std::move(quant);
    for (const PrecisionChoice& c : combinations(f)) {
      SCOPED_TRACE(fmt::format("{} head_dim {}, dtype {}, activations {}, kv {} {}, {}",
                               formats[f].name, files->config.shape.head_dim, dtype_name(c.dtype),
                               c.activations, c.kv, c.kvv, words_of(c.policy)));
      const auto start = std::chrono::steady_clock::now();
      const auto checked = check(*files, c);
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
      if (checked.ok()) {
        ++ran;
        ASSERT_NO_FATAL_FAILURE(generate(*files, c, *checked));
        continue;
      }
      // Nothing but integer inputs for weights that are none may be refused.
      ++refused;
      EXPECT_EQ(c.activations, "int8");
      const std::string message = message_of(checked.status());
      for (const char* part : {"int8", "use activations auto or 16"})
        EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
  EXPECT_GT(ran, 5 * refused);
  EXPECT_GT(refused, 5);
}

TEST(PrecisionMatrix, AllPairsOfSettingsOccur) {
  std::set<std::pair<std::string, std::string>> pairs;
  std::set<std::string> settings;
  const size_t formats = every_format().size();
  for (size_t f = 0; f < formats; ++f) {
    for (const PrecisionChoice& c : combinations(f)) {
      settings.insert(c.settings.begin(), c.settings.end());
      for (const auto& a : c.settings)
        for (const auto& b : c.settings) pairs.emplace(a, b);
    }
  }
  EXPECT_EQ(settings.size(), formats + 3 + 3 + std::size(kKvTypes) + every_policy().size());
  const auto kind = [](const std::string& s) { return s.substr(0, s.find(' ')); };
  for (const auto& a : settings) {
    for (const auto& b : settings) {
      if (kind(a) == kind(b)) continue;
      // A format meets a third of the policies; there are more of them than runs a format.
      if (kind(a) + kind(b) == "formatpolicy" || kind(a) + kind(b) == "policyformat") continue;
      EXPECT_TRUE(pairs.contains({a, b})) << a << ", " << b;
    }
  }
}

// Each word of --quantization on each format: what the format is called, or a contradiction.
TEST(PrecisionMatrix, EveryWordOfQuantization) {
  const auto formats = every_format();
  for (const Weights& w : formats) {
    const Json config = config_of(64);
    const QuantPair pair(w.form ? *w.form : form_named("awq_g32"), config);
    const auto files = open_model(w.form ? pair.quantised : pair.plain);
    ASSERT_TRUE(files.ok()) << files.status();
    const auto own = std::string(quant_method_name(files->quant.method));
    for (const char* word : {"auto", "none", "awq", "gptq", "fp8", "bitsandbytes",
                             "compressed-tensors", "gguf", "awq_marlin", "nonsense"}) {
      const auto got = choose_quantization(word, files->quant);
      const auto method = find_quant_method(word);
      const bool same =
          std::string_view(word) == "auto" || (method && own == quant_method_name(*method));
      const bool at_load = own == "none" && (std::string_view(word) == "fp8" ||
                                             std::string_view(word) == "bitsandbytes");
      EXPECT_EQ(got.ok(), same || at_load) << own << " " << word << " " << got.status();
      if (got.ok()) continue;
      const std::string message = message_of(got.status());
      EXPECT_NE(message.find(word), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace pagefold::testing
