// The default model's tokenizer, read from its GGUF file, against Hugging Face tokenizers.
#include "gguf_vocab.h"
#include "recorded.h"

namespace pagefold {
namespace {

class DefaultModel : public ::testing::Test {
 protected:
  void SetUp() override {
    auto spec = testing::default_model_spec();
    if (!spec) GTEST_SKIP() << "PAGEFOLD_TEST_MODEL names no file";
    auto made = tokenizer_from_gguf(*std::move(spec));
    ASSERT_TRUE(made.ok()) << made.status();
    tokenizer_ = *std::move(made);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(DefaultModel, SameIdsAsTheReference) {
  testing::expect_recorded(*tokenizer_, "smollm2", true);
}

TEST_F(DefaultModel, SpecialTokensAsTextGiveNoSpecialIds) {
  testing::expect_recorded(*tokenizer_, "smollm2_plain", false);
  for (const std::string& line : testing::recorded_lines()) {
    for (const int32_t id : tokenizer_->encode(line, true, false)) {
      ASSERT_FALSE(tokenizer_->is_special(id)) << line;
    }
  }
}

TEST_F(DefaultModel, DecodesBackToTheText) {
  for (const std::string& line : testing::recorded_lines()) {
    EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(line, true, true), false), line);
    EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(line, true, false), true), line);
  }
}

TEST_F(DefaultModel, KnowsItsSpecialTokens) {
  EXPECT_EQ(tokenizer_->vocab_size(), 49152);
  EXPECT_EQ(tokenizer_->piece(tokenizer_->bos()), "<|im_start|>");
  EXPECT_EQ(tokenizer_->piece(tokenizer_->eos()), "<|im_end|>");
  EXPECT_FALSE(tokenizer_->adds_bos());
  EXPECT_TRUE(tokenizer_->is_special(tokenizer_->find_piece("<|endoftext|>")));
  EXPECT_FALSE(tokenizer_->strips_first_space());
  EXPECT_EQ(tokenizer_->piece(-1), "");
  EXPECT_EQ(tokenizer_->token_bytes(1 << 30, true), "");
}

}  // namespace
}  // namespace pagefold
