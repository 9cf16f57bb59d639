// What a Hugging Face folder says beside its weights, and whether the parts of a model fit
// together.
#include "api/hf_text.h"

#include <gtest/gtest.h>

#include <chrono>

#include "api/tiny_folder.h"
#include "model/golden_models.h"

namespace pagefold::testing {
namespace {

class HfFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    write("tokenizer.json", tiny_tokenizer_json(100));
    write("config.json", R"({"eos_token_id": 5})");
  }
  void write(const char* name, std::string_view text) { write_text(folder_.path() / name, text); }
  HfText read() {
    auto t = read_hf_text(folder_.path());
    if (!t.ok()) {
      ADD_FAILURE() << t.status();
      return {};
    }
    return *std::move(t);
  }
  void refused(std::string_view file, std::string_view field) {
    const auto t = read_hf_text(folder_.path());
    ASSERT_FALSE(t.ok()) << field;
    for (const std::string_view part : {file, field})
      EXPECT_NE(message_of(t.status()).find(part), std::string::npos) << t.status();
  }
  TempFolder folder_;
};

TEST_F(HfFolder, EndTokens) {
  EXPECT_EQ(read().eos_token_ids, std::vector<int32_t>{5});
  write("generation_config.json", R"({"eos_token_id": [7, 9]})");
  EXPECT_EQ(read().eos_token_ids, (std::vector<int32_t>{7, 9}));
  write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(read().eos_token_ids, std::vector<int32_t>{5});
  for (const char* bad : {"\"x\"", "-1", "1.5", "[[3]]", "9999999999", "18446744073709551615"}) {
    write("generation_config.json", fmt::format(R"({{"eos_token_id": {}}})", bad));
    refused("generation_config.json", "eos_token_id");
  }
}

TEST_F(HfFolder, GenerationDefaults) {
  write("generation_config.json",
        R"({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": null, "do_sample": true})");
  const GenerationDefaults d = read().defaults;
  EXPECT_FLOAT_EQ(d.temperature.value(), 0.6f);
  EXPECT_FLOAT_EQ(d.top_p.value(), 0.95f);
  EXPECT_EQ(d.top_k.value(), 20);
  EXPECT_FALSE(d.min_p || d.repetition_penalty || d.max_new_tokens);
  write("generation_config.json", R"({"top_k": 1e30})");
  refused("generation_config.json", "top_k");
  write("generation_config.json", R"({"top_k": 99999999999})");
  refused("generation_config.json", "top_k");
  write("generation_config.json", R"({"top_p": "high"})");
  refused("generation_config.json", "top_p");
  write("generation_config.json", "[1]");
  refused("generation_config.json", "array");
}

TEST_F(HfFolder, ChatTemplates) {
  EXPECT_EQ(read().chat_template, "");
  write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(read().chat_template, "one");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                                       {"name": "default", "template": "two"}]})");
  EXPECT_EQ(read().chat_template, "two");
  write("chat_template.jinja", "three");
  EXPECT_EQ(read().chat_template, "three");
  write("tokenizer_config.json", "{");
  refused("tokenizer_config.json", "");
}

TEST_F(HfFolder, MissingTokenizer) {
  std::filesystem::remove(folder_.path() / "tokenizer.json");
  refused("tokenizer.json", "");
}

// A vocabulary larger than the model's output is refused; a smaller one is padding.
TEST_F(HfFolder, TokenizerAndModelMustFit) {
  const Json config = golden_model("llama").config;
  write_hf(folder_.path(), config, tiny_tensors(config), TensorType::F16);
  EngineOptions options;
  options.model = folder_.path().string();
  options.threads = 1;
  const auto fits = load_model(options);
  EXPECT_TRUE(fits.ok()) << fits.status();
  write("tokenizer.json", tiny_tokenizer_json(161));
  const auto start = std::chrono::steady_clock::now();
  const auto larger = load_model(options);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  ASSERT_FALSE(larger.ok());
  for (const char* part : {"161", "160", "tokenizer"})
    EXPECT_NE(message_of(larger.status()).find(part), std::string::npos) << larger.status();
}

}  // namespace
}  // namespace pagefold::testing
