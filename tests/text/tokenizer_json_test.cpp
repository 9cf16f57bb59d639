// tokenizer.json files written and used by Hugging Face tokenizers.
#include "recorded.h"

namespace pagefold {
namespace {

std::unique_ptr<Tokenizer> load(const std::string& name, std::string_view config = "") {
  auto made = tokenizer_from_json(testing::read_data(name + ".json"), config);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

TEST(TokenizerJson, Llama3PatternAndIgnoredMerges) {
  const auto tokenizer = load("llama3");
  ASSERT_NE(tokenizer, nullptr);
  testing::expect_recorded(*tokenizer, "llama3", true);
  // A token no merge leads to: the whole word is looked up first.
  const auto ids = tokenizer->encode(" Việt", false, true);
  ASSERT_EQ(ids.size(), 1u);
  EXPECT_EQ(tokenizer->decode(ids, true), " Việt");
}

TEST(TokenizerJson, Qwen2PatternWithNfc) {
  const auto tokenizer = load("qwen2");
  ASSERT_NE(tokenizer, nullptr);
  testing::expect_recorded(*tokenizer, "qwen2", true);
}

TEST(TokenizerJson, MetaspaceUnigramWithCharsmap) {
  const auto tokenizer = load("unigram");
  ASSERT_NE(tokenizer, nullptr);
  testing::expect_recorded(*tokenizer, "unigram", true);
  EXPECT_TRUE(tokenizer->strips_first_space());
}

TEST(TokenizerJson, Llama2BpeWithByteFallback) {
  const auto tokenizer = load("llama2");
  ASSERT_NE(tokenizer, nullptr);
  testing::expect_recorded(*tokenizer, "llama2", true, true);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("h\xC3\xA9 \xF0\x9F\xA6\x84 b", true, true), true),
            "h\xC3\xA9 \xF0\x9F\xA6\x84 b");
}

}  // namespace
}  // namespace pagefold
