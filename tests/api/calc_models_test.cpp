// Recorded shapes of public models, and log lines of other engines.
#include <algorithm>
#include <cmath>

#include "api/calc_cases.h"

namespace pagefold::testing {
namespace {

constexpr double kMiB = 1 << 20, kGiB = 1 << 30;

TEST(CalcModels, EveryRecordedModelGivesItsBytes) {
  const Json models = calc_fixture("model_configs.json")["models"];
  ASSERT_EQ(models.size(), 35u);
  for (const Json& m : models) {
    SCOPED_TRACE(m["id"].get<std::string>());
    for (const auto& [tokens, bytes] : m["expected_bf16_payload_bytes_per_sequence"].items()) {
      CalcRequest q;
      q.model = m["id"];
      q.tokens = std::stoll(tokens);
      const CalcResult r = calculated(q);
      EXPECT_EQ(r.kv.ideal_bytes, bytes["window_honoured"].get<uint64_t>()) << tokens;
      EXPECT_EQ(r.kv.full_attention_bytes, bytes["window_ignored"].get<uint64_t>()) << tokens;
      EXPECT_EQ(r.kv.state_bytes, m.value("fixed_state_bytes_per_sequence", uint64_t{0}));
      EXPECT_EQ(r.layers, m["num_layers"].get<int64_t>());
      int64_t layers = 0;
      for (const CalcGroup& g : r.groups) layers += g.layers;
      EXPECT_EQ(layers, r.layers);
      if (m.contains("params_total")) {
        ASSERT_TRUE(r.weights_bytes);
        EXPECT_EQ(*r.weights_bytes, 2 * m["params_total"].get<uint64_t>());
      }
    }
  }
}

TEST(CalcModels, NamesInAnyCaseWithOrWithoutTheOwner) {
  EXPECT_GE(calc_presets().size(), 35u);
  for (const std::string& id : calc_presets()) {
    std::string name = id.substr(id.find('/') + 1);
    std::transform(name.begin(), name.end(), name.begin(), ::toupper);
    for (const std::string& asked : {id, name}) {
      CalcRequest q;
      q.model = asked;
      EXPECT_EQ(calculated(q).model, id);
    }
  }
}

// What an engine logged, to the last byte where the log says MiB.
TEST(CalcModels, LogsOfOtherEnginesAreReproduced) {
  const Json cases = calc_fixture("kv_golden_cases.json")["cases"];
  ASSERT_EQ(cases.size(), 12u);
  for (const Json& c : cases) {
    SCOPED_TRACE(c["id"].get<std::string>());
    const std::string engine = c["engine"];
    if (c.contains("expect_mib")) {
      // The log of ratios gives no shape; any will do.
      const Json shape = c.value("shape", Json{32, 32, 128});
      const bool asked = c.contains("tokens_asked");
      const int64_t tokens =
          c.value("ratio_only", false) ? 512 : c[asked ? "tokens_asked" : "tokens"].get<int64_t>();
      CalcRequest q = by_hand(shape[0], shape[1], shape[2], tokens);
      q.engine = engine;
      q.kv_cache_dtype = c["k"];
      q.kv_cache_dtype_v = c["v"];
      q.context_padding = asked ? 32 : 1;
      const double total = static_cast<double>(calculated(q).kv.allocated_bytes) / kMiB;
      if (c.value("ratio_only", false)) {
        q.kv_cache_dtype_v = "f16";
        const double both = static_cast<double>(calculated(q).kv.allocated_bytes) / kMiB;
        EXPECT_DOUBLE_EQ((total - both / 2) / (both / 2), 80.0 / 256.0);
      } else {
        EXPECT_DOUBLE_EQ(total, c["expect_mib"]["total"].get<double>());
      }
      if (!c["expect_mib"].contains("k") || c.value("ratio_only", false)) continue;
      q.kv_cache_dtype_v = c["k"];
      const double keys = static_cast<double>(calculated(q).kv.allocated_bytes) / kMiB / 2;
      EXPECT_DOUBLE_EQ(keys, c["expect_mib"]["k"].get<double>());
      EXPECT_DOUBLE_EQ(total - keys, c["expect_mib"]["v"].get<double>());
    } else if (c.contains("expect_tokens")) {
      CalcRequest q;
      q.model = c["model"];
      q.engine = engine;
      q.kv_cache_memory_bytes =
          static_cast<uint64_t>(std::llround(c["available_gib"].get<double>() * kGiB));
      q.tokens = 4096;
      const CalcResult r = calculated(q);
      ASSERT_TRUE(r.fits);
      const double expected = c["expect_tokens"];
      EXPECT_NEAR(static_cast<double>(r.fits->max_tokens), expected,
                  expected * c["tolerance"].get<double>());
      EXPECT_EQ(r.kv.allocated_bytes, 4096 * c["as_allocated_bytes_per_token"].get<uint64_t>());
    } else {
      CalcRequest q;
      q.model = c["model"];
      q.engine = "vllm";
      q.tokens = c["tokens"].get<int64_t>();
      q.sequences = c["sequences"];
      const CalcResult r = calculated(q);
      EXPECT_DOUBLE_EQ(static_cast<double>(r.kv.ideal_bytes) / kGiB,
                       c["expect_gib"]["window_honoured"].get<double>());
      EXPECT_DOUBLE_EQ(static_cast<double>(r.kv.allocated_bytes) / kGiB,
                       c["expect_gib"]["window_ignored"].get<double>());
    }
  }
}

}  // namespace
}  // namespace pagefold::testing
