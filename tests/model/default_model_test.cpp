// The default model (PAGEFOLD_TEST_MODEL): greedy tokens against tools/reference_logits.py
// (tools/record_greedy.py), and what loading costs in memory.
#include <cstdlib>

#include "base/system.h"
#include "model/golden_models.h"
#include "support/sanitizers.h"

namespace pagefold::testing {
namespace {

class DefaultModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("PAGEFOLD_TEST_MODEL");
    if (!path || !std::filesystem::exists(path))
      GTEST_SKIP() << "PAGEFOLD_TEST_MODEL names no file";
    auto files = open_model(path);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
  }
  ModelFiles files_;
};

TEST_F(DefaultModel, GreedyTokensOfTheExactPath) {
  const auto text = read_file(PAGEFOLD_SOURCE_DIR "/tests/model/golden/greedy.json", 1 << 20);
  const auto cases = parse_json(text.value());
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 3u);
  ModelRunner runner(files_, 128, {}, "auto", 2);
  const int64_t vocab = runner.model().shape().vocab_size;
  for (const Json& c : *cases) {
    const auto prompt = c["prompt"].get<std::vector<int32_t>>();
    const auto answer = c["answer"].get<std::vector<int32_t>>();
    std::vector<float> logits = runner.run(prompt, 64);
    std::vector<int32_t> ours;
    const float* last = logits.data() + static_cast<int64_t>(prompt.size() - 1) * vocab;
    auto position = static_cast<int64_t>(prompt.size());
    while (true) {
      ours.push_back(static_cast<int32_t>(std::max_element(last, last + vocab) - last));
      if (ours.size() == answer.size()) break;
      runner.step({&ours.back(), 1}, position++, logits.data());
      last = logits.data();
    }
    EXPECT_EQ(ours, answer);
  }
}

TEST_F(DefaultModel, LoadingKeepsOneCopyOfTheWeights) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep memory of their own";
  const uint64_t before = resident_memory().anonymous;
  const auto network = load_network(files_, {});
  ASSERT_TRUE(network.ok()) << network.status();
  const ResidentMemory after = resident_memory();
  uint64_t file_bytes = 0;
  for (const TensorInfo& t : files_.tensors()) file_bytes += t.data.size();
  EXPECT_GT(after.anonymous - before, (*network)->weight_bytes() / 2);
  EXPECT_LT(static_cast<double>(after.anonymous),
            1.05 * static_cast<double>((*network)->weight_bytes()) + 96.0 * (1 << 20));
  // Packing adds padding only, and the file's own pages are gone.
  EXPECT_LT(static_cast<double>((*network)->weight_bytes()),
            1.05 * static_cast<double>(file_bytes));
  EXPECT_LT(after.total - after.anonymous, 64u << 20);
}

}  // namespace
}  // namespace pagefold::testing
