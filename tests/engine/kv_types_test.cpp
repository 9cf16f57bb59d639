// Caches of every pair of types through the whole engine: they generate, their bytes are those of
// the formula, and neighbours change nothing.
#include "engine/compression.h"
#include "engine/tiny_engine.h"

namespace pagefold::testing {
namespace {

constexpr DType kTypes[] = {DType::f32,      DType::f16,  DType::bf16, DType::fp8_e4m3,
                            DType::fp8_e5m2, DType::int8, DType::int4};
constexpr const char* kIsas[] = {"auto", "scalar", "avx2"};

struct Combination {
  DType dtype;
  KvFormat kv;
  KvOptions policy;
  const char* isa;
  std::string name() const {
    return fmt::format("dtype {}, kv {}, {} {}", dtype_name(dtype), kv.name(), words_of(policy),
                       isa);
  }
};

// D12: all pairs of one head_dim, the other settings in turn; for the others every type once as
// keys and once as values.
std::vector<Combination> combinations(bool all_pairs) {
  const auto policies = every_policy();
  std::vector<Combination> out;
  for (size_t k = 0; k < std::size(kTypes); ++k) {
    for (size_t v = 0; v < std::size(kTypes); ++v) {
      if (!all_pairs && v != (k + 1) % std::size(kTypes)) continue;
      const size_t n = 5 * k + 8 * v;
      const bool scales = dtype_has_scales(kTypes[k]) || dtype_has_scales(kTypes[v]);
      out.push_back({kTypes[n % 3], KvFormat(kTypes[k], kTypes[v], scales && n % 2 == 1 ? 32 : 0),
                     policies[n % policies.size()], kIsas[n % std::size(kIsas)]});
    }
  }
  return out;
}

// What is refused before weights are read: api/engine_setup does these in this order.
Status check_before_loading(const EngineOptions& options, const ModelShape& shape,
                            const KvFormat& format, const EngineConfig& serving = {}) {
  PF_ASSIGN(EngineConfig config, resolve_config(options, shape, format, uint64_t{1} << 30));
  config.allow_packing_off = serving.allow_packing_off;
  return resolve_kv_plan({}, config, kv_model(shape, config.block_size), 0).status();
}

class Matrix : public ::testing::TestWithParam<int> {};

TEST_P(Matrix, EveryCombinationGenerates) {
  const TempFolder folder;
  const Json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"vocab_size", 160},
                       {"hidden_size", 64},
                       {"intermediate_size", 64},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 2},
                       {"num_key_value_heads", 1},
                       {"head_dim", GetParam()},
                       {"max_position_embeddings", 512},
                       {"tie_word_embeddings", true}};
  write_hf(folder.path(), config, tiny_tensors(config), TensorType::F32);
  const auto files = open_model(folder.path());
  ASSERT_TRUE(files.ok()) << files.status();
  for (const Combination& c : combinations(GetParam() == 80)) {
    SCOPED_TRACE(c.name());
    if (!make_cpu_backend({.isa = c.isa}).ok()) continue;
    EngineOptions options;
    options.kv = c.policy;
    options.kv_cache_memory_bytes = 4 << 20;
    ASSERT_TRUE(check_before_loading(options, model_shape(files->config), c.kv).ok());
    NetworkOptions o;
    o.backend = {.isa = c.isa, .threads = 1, .dtype = c.dtype, .activations = Activations::bits16};
    auto model = load_network(*files, o);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto resolved = resolve_config(options, (*model)->shape(), c.kv, 0);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    auto engine = EngineCore::start(**model, *resolved);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const Answer a = answer(**engine, compressed(prompt_of(70, 3, 160), 12, c.policy));
    ASSERT_EQ(a.result.reason, FinishReason::length) << a.result.error;
    for (const TokenEvent& e : a.events) ASSERT_TRUE(std::isfinite(e.logprobs[0].logprob));
    // Acceptance: usage, pool and formula agree.
    const uint64_t block = c.kv.slot_bytes(GetParam()) * 16;
    EXPECT_EQ((*engine)->metrics().kv_block_bytes, block);
    EXPECT_EQ((*model)->backend().block_bytes(), block);
    EXPECT_EQ(a.result.kv.bytes, static_cast<uint64_t>(a.result.kv.blocks) * block);
    EXPECT_GT(a.result.kv.blocks, 0);
    EXPECT_EQ(resolved->kv_cache_memory_bytes % block, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, Matrix, ::testing::Values(64, 80, 96, 128, 256),
                         [](const auto& dim) { return fmt::format("{}", dim.param); });

std::vector<Answer> alone(const std::vector<Request>& requests, const KvFormat& kv) {
  WatchedModel model;
  EngineConfig config = tiny_config(model.shape(), 1);
  config.kv_format = kv;
  auto engine = EngineCore::start(model, config);
  EXPECT_TRUE(engine.ok()) << engine.status();
  std::vector<Answer> answers;
  for (const Request& r : requests) answers.push_back(answer(**engine, r));
  return answers;
}

// Every policy beside all the others, and in another cut of the prompt.
template <DType k, DType v, int group>
void expect_same_beside_others() {
  std::vector<Request> requests;
  uint64_t i = 0;
  for (const KvOptions& kv : every_policy()) {
    ++i;
    requests.push_back(
        compressed(prompt_of(30 + static_cast<int64_t>(i * 53 % 150), i, 160), 30, kv, i));
  }
  const std::vector<Answer> want = alone(requests, KvFormat(k, v, group));
  const auto got = answers_together(requests, {}, [](const ModelShape& s) {
    EngineConfig c = tiny_config(s, 32);
    c.kv_format = KvFormat(k, v, group);
    c.max_num_batched_tokens = 37;
    return c;
  });
  ASSERT_EQ(got.size(), want.size());
  for (size_t r = 0; r < got.size(); ++r)
    expect_same_answer(got[r], want[r], words_of(requests[r].kv));
}

TEST(KvTypes, NeighboursChangeNoAnswerFp8) {
  expect_same_beside_others<DType::fp8_e4m3, DType::fp8_e5m2, 0>();
}
TEST(KvTypes, NeighboursChangeNoAnswerInt8) {
  expect_same_beside_others<DType::int8, DType::int4, 32>();
}
TEST(KvTypes, NeighboursChangeNoAnswerInt4) {
  expect_same_beside_others<DType::int4, DType::int8, 0>();
}

TEST(BeforeLoading, RefusesWhatTheEngineWould) {
  WatchedModel model;
  const auto refused = [&](const EngineOptions& o) {
    const Status s = check_before_loading(o, model.shape(), DType::int8);
    EXPECT_TRUE(absl::IsInvalidArgument(s)) << s;
    return message_of(s);
  };
  EngineOptions o;
  EXPECT_TRUE(check_before_loading(o, model.shape(), DType::int8).ok());
  o.kv["policy"] = "h3o";
  EXPECT_NE(refused(o).find("h2o"), std::string::npos);
  o.kv = {{"policy", "h2o"}, {"packing", "off"}};
  EXPECT_TRUE(check_before_loading(o, model.shape(), DType::int8).ok());
  EngineConfig serving;
  serving.allow_packing_off = false;
  EXPECT_FALSE(check_before_loading(o, model.shape(), DType::int8, serving).ok());
  o.kv = {{"policy", "triattention"}, {"calibration", "nobody"}};
  EXPECT_NE(refused(o).find("nobody"), std::string::npos);
  o = {};
  o.block_size = 24;
  EXPECT_NE(refused(o).find("--block-size"), std::string::npos);
  o = {};
  o.max_model_len = 100000;
  EXPECT_NE(refused(o).find("--allow-long-context"), std::string::npos);
  o = {};
  o.max_model_len = 1024;
  o.kv_cache_memory_bytes = 1024 / 16 * 6 * KvFormat(DType::int8).block_bytes(16, 16) - 1;
  EXPECT_NE(refused(o).find("--kv-cache-memory-bytes"), std::string::npos);
  o.kv_cache_memory_bytes += 1;
  EXPECT_TRUE(check_before_loading(o, model.shape(), DType::int8).ok());
}

}  // namespace
}  // namespace pagefold::testing
