// Tokenizers and configurations that go from GGUF metadata to Hugging Face files and back.
#include "quantize/hf_config.h"
#include "quantize/hf_tokenizer.h"
#include "text/gguf_vocab.h"
#include "text/recorded.h"

namespace pagefold {
namespace {

std::unique_ptr<Tokenizer> converted(const GgufTokenizerSpec& spec) {
  const auto json = hf_tokenizer(spec);
  EXPECT_TRUE(json.ok()) << json.status();
  const auto config = hf_tokenizer_config(spec, "", 100);
  EXPECT_TRUE(config.ok()) << config.status();
  if (!json.ok() || !config.ok()) return nullptr;
  auto made = tokenizer_from_json(dump_json(*json), dump_json(*config));
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

// A vocabulary that the sentencepiece library trained (tools/record_tokenizers.py).
GgufTokenizerSpec recorded_pieces() {
  GgufTokenizerSpec spec;
  spec.model = "llama";
  for (const std::string& line : testing::split_lines(testing::read_data("sp_bpe.pieces"))) {
    if (line.starts_with("charsmap ")) continue;
    const size_t gap = line.find(' ', 3);
    VocabEntry e{line.substr(gap + 1), std::stof(line.substr(3, gap - 3)), TokenKind::normal};
    const std::string kind = line.substr(0, 2);
    if (kind == "un") e.kind = TokenKind::unknown;
    if (kind == "co") e.kind = TokenKind::control;
    if (kind == "by") e.kind = TokenKind::byte;
    if (kind == "us") e.kind = TokenKind::user_defined;
    spec.tokens.push_back(e);
  }
  spec.unk = 0, spec.bos = 1, spec.eos = 2;
  spec.add_bos = true;
  return spec;
}

TEST(HfTokenizer, SentencePieceBpeGivesTheRecordedIds) {
  const GgufTokenizerSpec spec = recorded_pieces();
  const auto ours = converted(spec);
  const auto source = tokenizer_from_gguf(spec);
  ASSERT_TRUE(ours && source.ok());
  int same = 0, plain = 0;
  for (const std::string& line : testing::recorded_lines()) {
    // Special and user-defined pieces begin a text anew for this library: only lines without.
    if (line.find('<') != std::string::npos || line.find("[X]") != std::string::npos) continue;
    ++plain;
    same += ours->encode(line, true, false) == (*source)->encode(line, true, false);
    const auto ids = ours->encode(line, false, false);
    EXPECT_EQ(ours->decode(ids, true), (*source)->decode(ids, true)) << line;
  }
  EXPECT_GT(plain, 1000);
  EXPECT_EQ(same, plain);
  EXPECT_TRUE(ours->adds_bos());
  EXPECT_EQ(ours->bos(), 1);
}

TEST(HfTokenizer, TheDefaultModelsGivesTheRecordedIds) {
  const auto spec = testing::default_model_spec();
  if (!spec) GTEST_SKIP() << "PAGEFOLD_TEST_MODEL names no model";
  const auto ours = converted(*spec);
  ASSERT_NE(ours, nullptr);
  testing::expect_recorded(*ours, "smollm2", true);
}

TEST(HfTokenizer, SpecialTokensAroundATextAndPreTokenizers) {
  GgufTokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "llama-bpe";
  for (const char* piece : {"a", "b", "ab", "1", "11"}) spec.tokens.push_back({piece, 0, {}});
  spec.tokens.push_back({"<s>", 0, TokenKind::control});
  spec.tokens.push_back({"<tool>", 0, TokenKind::user_defined});
  spec.merges = {"a b", "1 1"};
  spec.bos = 5;
  const auto t = converted(spec);
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->encode("ab<tool>1111<s>", true, true), (std::vector<int32_t>{5, 2, 6, 4, 3, 3, 5}));
  EXPECT_FALSE(t->is_special(6));
  EXPECT_TRUE(t->is_special(5));
  spec.has_add_bos = true;  // the file says no
  EXPECT_EQ(converted(spec)->encode("ab", true, true), (std::vector<int32_t>{2}));
}

TEST(HfTokenizer, WhatCannotBeSaidIsRefusedByName) {
  GgufTokenizerSpec spec;
  spec.tokens = {{"a", 0, {}}};
  const auto refused = [&](std::string_view says) {
    const auto json = hf_tokenizer(spec);
    ASSERT_FALSE(json.ok());
    EXPECT_NE(message_of(json.status()).find(says), std::string::npos) << json.status();
  };
  spec.model = "t5";
  refused("t5");
  spec.model = "gpt2";
  spec.pre = "no-such";
  refused("no-such");
  spec.pre = "gpt-2";
  spec.merges = {"ab"};
  refused("merges[0]");
  spec.model = "llama";
  spec.precompiled_charsmap = "x";
  refused("character map");
}

TEST(HfConfig, RefusesWhatNoClassExpresses) {
  ModelConfig c;
  c.arch = *find_gguf_architecture("llama");
  c.shape.n_layers = 2;
  c.shape.n_heads = c.shape.n_kv_heads = 2;
  c.shape.head_dim = 16, c.rope.rot = 16;
  c.shape.hidden = 32, c.ffn = 64, c.shape.vocab_size = 10, c.shape.context_length = 100;
  c.shape.layer_window = {8, 0};
  const auto refused = [&](std::string_view says) {
    const auto json = hf_config(c, DType::bf16, {}, {});
    ASSERT_FALSE(json.ok());
    EXPECT_NE(message_of(json.status()).find(says), std::string::npos) << json.status();
  };
  refused("some layers");
  c.shape.layer_window = {0, 0};
  ASSERT_TRUE(hf_config(c, DType::bf16, {}, {}).ok());
  c.rope.rot = 8;
  refused("8 of 16");
  c.rope.rot = 16;
  c.rope.divisors = {1, 2, 3, 4, 5, 6, 7, 8};
  refused("rope_freqs");
  c.rope.divisors.clear();
  c.output_bias = true;
  refused("bias");
}

}  // namespace
}  // namespace pagefold
