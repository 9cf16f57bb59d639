// What an engine's options get wrong is said before weights are read; statistics are found by name,
// beside the model, and by the key of its weights.
#include "api/engine_setup.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "api/calibrations.h"
#include "api/tiny_folder.h"
#include "base/file.h"
#include "engine/compression.h"
#include "formats/weights_key.h"
#include "model/golden_models.h"

namespace pagefold::testing {
namespace {

namespace fs = std::filesystem;

class Setup : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("PAGEFOLD_CACHE", cache_.path().c_str(), 1);
    config_ = golden_model("llama").config;
    write_hf(folder_.path(), config_, tiny_tensors(config_), TensorType::F16);
    write_text(folder_.path() / "tokenizer.json", tiny_tokenizer_json(100));
    options_.model = folder_.path().string();
    options_.threads = 1;
    options_.max_model_len = 128;
    options_.kv_cache_memory_bytes = 1 << 20;
    options_.kv = {{"policy", "triattention"}, {"budget", "256"}};
  }
  void TearDown() override { ::unsetenv("PAGEFOLD_CACHE"); }

  // Without the weights of a layer nothing can be loaded.
  void take_weights_away() {
    std::vector<TinyTensor> some = tiny_tensors(config_);
    std::erase_if(
        some, [](const TinyTensor& t) { return t.name.find("down_proj") != std::string::npos; });
    write_hf(folder_.path(), config_, some, TensorType::F16);
  }
  void refused(const EngineOptions& options, const std::vector<std::string>& parts,
               const ServingLimits& limits = {}) {
    const auto setup = load_for_engine(options, limits);
    ASSERT_FALSE(setup.ok()) << parts[0];
    EXPECT_EQ(setup.status().code(), absl::StatusCode::kInvalidArgument) << setup.status();
    for (const std::string& part : parts)
      EXPECT_NE(message_of(setup.status()).find(part), std::string::npos) << setup.status();
  }
  KvModel model() { return kv_model(model_shape(open_model(folder_.path())->config), 16); }
  void write_statistics(const fs::path& path, double first, int more_layers = 0) {
    KvModel m = model();
    m.n_layers += more_layers;
    std::vector<double> values(
        static_cast<size_t>(m.n_layers * m.n_heads) * static_cast<size_t>(m.bands()), first);
    const QuerySums sums{1, values.data(), values.data(), values.data()};
    fs::create_directories(path.parent_path());
    ASSERT_TRUE(
        write_file_atomic(path, write_calibration(calibration_from_sums(m, sums, "t"))).ok());
  }
  // The statistics found under a name: their first value; 0: none.
  float found(std::string_view name) {
    const auto setup = load_for_engine(options_);
    if (!setup.ok()) {
      ADD_FAILURE() << setup.status();
      return -1;
    }
    const auto stats = setup->config.find_calibration(name);
    return stats == nullptr ? 0 : stats->re[0];
  }

  TempFolder folder_, cache_;
  Json config_;
  EngineOptions options_;
};

TEST_F(Setup, WrongWordsAreRefusedBeforeWeightsAreRead) {
  EXPECT_TRUE(load_for_engine(options_).ok());
  take_weights_away();
  const auto without = load_for_engine(options_);
  EXPECT_NE(message_of(without.status()).find("down_proj"), std::string::npos) << without.status();
  const std::pair<KvOptions, std::vector<std::string>> wrong[] = {
      {{{"policy", "h20"}}, {"h20", "known policies: full, random", "triattention", "adakv"}},
      {{{"policy", "h2o"}, {"bugdet", "9"}}, {"bugdet", "known keys: policy, budget"}},
      {{{"policy", "h2o"}, {"budget", "many"}}, {"kv.budget", "many"}},
      {{{"policy", "triattention"}, {"budget", "64"}}, {"64", "recent 128"}},
      {{{"policy", "triattention"}, {"calibration", "nope"}}, {"nope", "known: auto, self"}},
      {{{"policy", "h2o"}, {"alloc", "x"}}, {"uniform, pyramid, adaptive, global"}},
      {{{"policy", "oracle"}}, {"eval"}},
  };
  for (const auto& [kv, parts] : wrong) {
    EngineOptions options = options_;
    options.kv = kv;
    refused(options, parts);
  }
  EngineOptions options = options_;
  options.kv = {{"policy", "h2o"}, {"packing", "off"}};
  refused(options, {"order, fill or block"}, {.allow_packing_off = false});
  options.kv = {{"policy", "h2o"}, {"interval", "4"}};
  refused(options, {"4", "least interval of 16"}, {.min_kv_interval = 16});
  options.kv = {{"policy", "rkv"}};
  refused(options, {"rkv", "use one of full", "triattention"},
          {.most_policy_cost = PolicyCost::linear});
  options = options_;
  options.kv_cache_memory_bytes = 4096;
  refused(options, {"--kv-cache-memory-bytes", "128 tokens"});
}

TEST_F(Setup, StatisticsOfAnotherModelAreRefusedBeforeWeightsAreRead) {
  take_weights_away();
  const fs::path file = cache_.path() / "other.bin";
  write_statistics(file, 1, 1);
  EngineOptions options = options_;
  options.kv_calibrations = {"other=" + file.string()};
  refused(options, {file.string(), "layers"});
  options.kv_calibrations = {"auto=" + file.string()};
  refused(options, {"--kv-calibration", "NAME"});
}

TEST_F(Setup, AFileThatHoldsNoStatisticsIsWrongUse) {
  take_weights_away();
  write_statistics(cache_.path() / "calibrations" / "books.calibration", 1);
  EngineOptions options = options_;
  const std::string missing = (cache_.path() / "none.bin").string();
  options.kv_calibrations = {"a=" + missing};
  refused(options, {fmt::format("--kv-calibration a={}", missing), "no such file", "there: books"});
  const fs::path foreign = cache_.path() / "foreign.bin";
  write_text(foreign, "PK and something else");
  options.kv_calibrations = {"a=" + foreign.string()};
  refused(options, {foreign.string(), "not a pagefold calibration", "NAME=PATH", "auto or self"});
  options.kv_calibrations = {"a=" + cache_.path().string()};
  refused(options, {cache_.path().string(), "NAME=PATH"});
  options.kv_calibrations = {"novels"};
  refused(options, {"--kv-calibration novels", "novels.calibration", "there: books"});
  options.kv_calibrations = {"a b"};
  refused(options, {"--kv-calibration a b", "letters, digits"});
}

TEST_F(Setup, TheLeastBudgetIsTheOneThatTheEngineTakes) {
  // Until queries were seen the first tokens are kept, a quarter of the budget beside 128 recent
  // ones: 170; statistics need 4 sinks.
  options_.kv = {{"policy", "triattention"}, {"budget", "100"}};
  refused(options_, {"100 is below the 170 slots"});
  options_.kv["budget"] = "169";
  refused(options_, {"169 is below the 170 slots"});
  options_.kv["budget"] = "170";
  EXPECT_TRUE(load_for_engine(options_).ok());
  write_statistics(folder_.path() / "triattention.calibration", 3);
  options_.kv["budget"] = "131";
  refused(options_, {"131 is below the 132 slots"});
  options_.kv["budget"] = "132";
  EXPECT_TRUE(load_for_engine(options_).ok());
}

TEST_F(Setup, StatisticsAreFoundByNameBesideTheModelAndByTheWeights) {
  EXPECT_EQ(found("auto"), 0);
  const auto files = open_model(folder_.path());
  const fs::path kept = calibration_output("", *files).value();
  EXPECT_EQ(kept,
            cache_.path() / "calibrations" / (weights_key(files->tensors()) + ".calibration"));
  write_statistics(kept, 2);
  EXPECT_EQ(found("auto"), 2);
  // Other weights, other statistics.
  auto tensors = tiny_tensors(config_);
  tensors.back().values[0] += tensors.back().step;
  write_hf(folder_.path(), config_, tensors, TensorType::F16);
  EXPECT_EQ(found("auto"), 0);
  write_statistics(folder_.path() / "triattention.calibration", 3);
  EXPECT_EQ(found("auto"), 3);

  const fs::path named = calibration_output("books", *files).value();
  EXPECT_EQ(named, cache_.path() / "calibrations" / "books.calibration");
  write_statistics(named, 4);
  EXPECT_EQ(found("books"), 0);  // not registered
  options_.kv_calibrations = {"books"};
  EXPECT_EQ(found("books"), 4);
  EXPECT_EQ(calibration_output("a/b.cal", *files).value(), fs::path("a/b.cal"));
  EXPECT_EQ(calibration_output("b.cal", *files).value(), fs::path("b.cal"));
  EXPECT_FALSE(calibration_output("auto", *files).ok());
}

}  // namespace
}  // namespace pagefold::testing
