// GGUF models "llama" and "t5" against the sentencepiece library, on vocabularies it trained.
#include "recorded.h"

namespace pagefold {
namespace {

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return out;
}

// "kind score piece" a line, then "charsmap HEX".
GgufTokenizerSpec read_pieces(const std::string& name, const std::string& model) {
  GgufTokenizerSpec spec;
  spec.model = model;
  for (const std::string& line : testing::split_lines(testing::read_data(name + ".pieces"))) {
    if (line.starts_with("charsmap ")) {
      spec.precompiled_charsmap = from_hex(line.substr(9));
      continue;
    }
    const size_t gap = line.find(' ', 3);
    VocabEntry entry{line.substr(gap + 1), std::stof(line.substr(3, gap - 3)), TokenKind::normal};
    const std::string kind = line.substr(0, 2);
    if (kind == "un") entry.kind = TokenKind::unknown;
    if (kind == "co") entry.kind = TokenKind::control;
    if (kind == "by") entry.kind = TokenKind::byte;
    if (kind == "us") entry.kind = TokenKind::user_defined;
    spec.tokens.push_back(entry);
  }
  spec.unk = 0, spec.bos = 1, spec.eos = 2;
  return spec;
}

std::unique_ptr<Tokenizer> make(GgufTokenizerSpec spec) {
  auto made = tokenizer_from_gguf(std::move(spec));
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

TEST(SentencePiece, BpeGivesTheSameIds) {
  const auto tokenizer = make(read_pieces("sp_bpe", "llama"));
  ASSERT_NE(tokenizer, nullptr);
  testing::expect_recorded(*tokenizer, "sp_bpe", false);
}

TEST(SentencePiece, UnigramGivesTheSameIds) {
  GgufTokenizerSpec spec = read_pieces("sp_unigram", "t5");
  spec.remove_extra_whitespaces = true;
  const auto tokenizer = make(spec);
  ASSERT_NE(tokenizer, nullptr);
  testing::expect_recorded(*tokenizer, "sp_unigram", false);
}

TEST(SentencePiece, AddsBosAsTheFileSays) {
  GgufTokenizerSpec spec = read_pieces("sp_bpe", "llama");
  auto tokenizer = make(spec);
  EXPECT_TRUE(tokenizer->adds_bos());  // the format's default
  EXPECT_EQ(tokenizer->encode("a", true, true).front(), 1);
  EXPECT_NE(tokenizer->encode("a", false, true).front(), 1);
  // A text that brings its own: one BOS when the caller adds none.
  EXPECT_EQ(tokenizer->encode("<s>a", false, true), tokenizer->encode("a", true, true));
  spec.has_add_bos = true;
  spec.add_eos = true;
  tokenizer = make(spec);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->encode("", true, true), std::vector<int32_t>{2});
}

TEST(SentencePiece, ForgedControlTokensAreText) {
  const auto tokenizer = make(read_pieces("sp_bpe", "llama"));
  for (const std::string text : {"<s>", "</s>", "<unk>", "<0x41>", "x</s>y"}) {
    const auto ids = tokenizer->encode(text, false, false);
    for (const int32_t id : ids) EXPECT_FALSE(tokenizer->is_special(id)) << text;
    EXPECT_EQ(tokenizer->decode(ids, true), text);
  }
}

TEST(SentencePiece, DecodesBackToTheText) {
  const auto tokenizer = make(read_pieces("sp_bpe", "llama"));
  EXPECT_TRUE(tokenizer->strips_first_space());
  for (const std::string& line : testing::recorded_lines()) {
    if (line.find("\xE2\x96\x81") != std::string::npos) continue;  // U+2581 comes back as a space
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(line, true, false), true), line);
  }
}

TEST(SentencePiece, PrefixSpaceIsOptional) {
  GgufTokenizerSpec spec = read_pieces("sp_bpe", "llama");
  spec.add_space_prefix = false;
  const auto tokenizer = make(spec);
  EXPECT_FALSE(tokenizer->strips_first_space());
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" a", false, false), true), " a");
  EXPECT_NE(tokenizer->piece(tokenizer->encode("a", false, false)[0]),
            "\xE2\x96\x81"
            "a");
}

TEST(SentencePiece, UnusedPiecesFallApart) {
  GgufTokenizerSpec spec;
  spec.model = "llama";
  spec.unk = 0;
  spec.add_space_prefix = false;
  spec.tokens = {{"<unk>", 0, TokenKind::unknown}, {"a", -1, {}}, {"b", -2, {}},
                 {"ab", -3, TokenKind::unused},    {"c", -4, {}}, {"abc", -5, {}}};
  const auto tokenizer = make(spec);
  EXPECT_EQ(tokenizer->encode("ab", false, false), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(tokenizer->encode("abc", false, false), std::vector<int32_t>{5});
  EXPECT_EQ(tokenizer->encode("axxb", false, false), (std::vector<int32_t>{1, 0, 2}));
}

TEST(SentencePiece, DamagedFilesAreRefused) {
  GgufTokenizerSpec spec = read_pieces("sp_bpe", "llama");
  spec.bos = 1 << 30;
  EXPECT_EQ(tokenizer_from_gguf(spec).status().code(), absl::StatusCode::kDataLoss);
  spec = read_pieces("sp_bpe", "llama");
  spec.tokens[5].score = __builtin_nanf("");
  EXPECT_FALSE(tokenizer_from_gguf(spec).ok());
  spec = read_pieces("sp_unigram", "t5");
  for (const size_t n : {1, 3, 4, 100, 500}) {
    GgufTokenizerSpec cut = spec;
    cut.precompiled_charsmap.resize(n);
    const auto made = tokenizer_from_gguf(cut);
    EXPECT_NE(message_of(made.status()).find("charsmap"), std::string::npos) << n;
  }
  spec.tokens.clear();
  EXPECT_FALSE(tokenizer_from_gguf(spec).ok());
}

}  // namespace
}  // namespace pagefold
