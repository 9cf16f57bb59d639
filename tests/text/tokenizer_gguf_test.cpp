// Byte-level BPE from GGUF metadata: names of pre-tokenizers, damaged vocabularies.
#include "gguf_vocab.h"
#include "recorded.h"
#include "text/byte_map.h"
#include "text/pre_names.h"
#include "text/regex.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

// The 256 bytes are the ids 0 to 255; `more` follows.
GgufTokenizerSpec byte_spec(const std::string& pre, std::vector<VocabEntry> more,
                            std::vector<std::string> merges) {
  GgufTokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = pre;
  for (int b = 0; b < 256; ++b) {
    spec.tokens.push_back({utf8_of(byte_to_char(static_cast<unsigned char>(b))), 0, {}});
  }
  for (VocabEntry& entry : more) spec.tokens.push_back(std::move(entry));
  spec.merges = std::move(merges);
  return spec;
}

std::string pieces_of(const std::string& pre, const std::string& text) {
  const auto named = find_named_pre(pre);
  EXPECT_TRUE(named.ok()) << named.status();
  std::vector<std::string> pieces{text};
  for (const auto pattern : named->patterns) {
    const auto regex = Regex::compile(pattern);
    EXPECT_TRUE(regex.ok()) << regex.status();
    std::vector<std::string> next;
    for (const std::string& piece : pieces) {
      std::vector<TextSpan> matches;
      (*regex)->find_all(piece, matches);
      size_t done = 0;
      for (const TextSpan m : matches) {
        if (m.begin > done) next.push_back(piece.substr(done, m.begin - done));
        next.push_back(piece.substr(m.begin, m.end - m.begin));
        done = m.end;
      }
      if (done < piece.size()) next.push_back(piece.substr(done));
    }
    pieces = next;
  }
  std::string out;
  for (const std::string& piece : pieces) out += "[" + piece + "]";
  return out;
}

TEST(PreNames, CutAsTheModelsWereTrained) {
  const std::string text = "I'LL pay 12345 \xE2\x82\xAC, ok?\n\n  x";
  EXPECT_EQ(pieces_of("gpt-2", text),
            "[I]['][LL][ pay][ 12345][ \xE2\x82\xAC,][ ok][?][\n\n ][ x]");
  EXPECT_EQ(pieces_of("llama-bpe", text),
            "[I]['LL][ pay][ ][123][45][ \xE2\x82\xAC,][ ok][?\n\n][ ][ x]");
  EXPECT_EQ(pieces_of("qwen2", text),
            "[I]['LL][ pay][ ][1][2][3][4][5][ \xE2\x82\xAC,][ ok][?\n\n][ ][ x]");
  EXPECT_EQ(pieces_of("smollm", text),
            "[I]['][LL][ pay][ ][1][2][3][4][5][ \xE2\x82\xAC,][ ok][?][\n\n ][ x]");
  EXPECT_EQ(pieces_of("deepseek-coder", "a 12\n b!"), "[a][ ][1][2][\n][ b][!]");
  EXPECT_EQ(pieces_of("gpt-4o", "HelloWORLD don't"), "[Hello][WORLD][ don't]");
  EXPECT_EQ(pieces_of("tekken", "HelloWORLD don't 12"), "[Hello][WORLD][ don]['t][ ][1][2]");
  EXPECT_EQ(pieces_of("falcon", "a`b 1234"), "[a][`][b][ ][123][4]");
  EXPECT_EQ(pieces_of("bloom", "a b, c"), "[a][ b][,][ c]");
}

TEST(PreNames, EveryPatternCompilesForPcre) {
  for (const char* name : {"",
                           "default",
                           "gpt-2",
                           "llama3",
                           "llama-v3",
                           "llama-bpe",
                           "smollm",
                           "qwen2",
                           "deepseek-llm",
                           "deepseek-coder",
                           "deepseek-v3",
                           "falcon",
                           "starcoder",
                           "refact",
                           "command-r",
                           "olmo",
                           "stablelm2",
                           "dbrx",
                           "gpt-4o",
                           "tekken",
                           "smaug-bpe",
                           "mpt",
                           "bloom"}) {
    const auto named = find_named_pre(name);
    ASSERT_TRUE(named.ok()) << name;
    for (const auto pattern : named->patterns) {
      const auto regex = Regex::compile(pattern);
      ASSERT_TRUE(regex.ok()) << name << ": " << regex.status();
      EXPECT_TRUE((*regex)->uses_pcre()) << name;
    }
  }
}

TEST(PreNames, UnknownNamesAreRefusedWithTheList) {
  const auto made = tokenizer_from_gguf(byte_spec("zap-bpe", {}, {}));
  ASSERT_EQ(made.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(message_of(made.status()).find("zap-bpe"), std::string::npos);
  EXPECT_NE(message_of(made.status()).find("smollm, starcoder"), std::string::npos);
  GgufTokenizerSpec spec = byte_spec("gpt-2", {}, {});
  spec.model = "bert";
  EXPECT_NE(message_of(tokenizer_from_gguf(spec).status()).find("\"bert\""), std::string::npos);
}

TEST(TokenizerGguf, Llama3TakesWholeWordsAndAddsBos) {
  // U+0120 is the space: " Vi\u1EC7t" as one piece no merge makes.
  std::string word;
  append_byte_chars(" Vi\xE1\xBB\x87t", word);
  GgufTokenizerSpec spec =
      byte_spec("llama-bpe", {{word, 0, {}}, {"<s>", 0, TokenKind::control}}, {});
  spec.bos = 257;
  const auto made = tokenizer_from_gguf(spec);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->encode(" Vi\xE1\xBB\x87t", true, true), (std::vector<int32_t>{257, 256}));
  EXPECT_EQ((*made)->decode(std::vector<int32_t>{257, 256}, true), " Vi\xE1\xBB\x87t");
}

TEST(TokenizerGguf, MergesMustNameTokens) {
  const auto message = [](std::vector<VocabEntry> more, std::vector<std::string> merges) {
    const auto made = tokenizer_from_gguf(byte_spec("gpt-2", std::move(more), std::move(merges)));
    return made.ok() ? "" : message_of(made.status());
  };
  EXPECT_EQ(message({{"ab", 0, {}}}, {"a b"}), "");
  EXPECT_NE(message({}, {"a b"}).find("\"ab\" is not in the vocabulary"), std::string::npos);
  EXPECT_NE(message({}, {"zz b"}).find("\"zz\""), std::string::npos);
  for (const char* bad : {"", "a", "a ", " a"}) EXPECT_NE(message({}, {bad}), "") << bad;
}

TEST(TokenizerGguf, MergesNeverMakeAReservedToken) {
  GgufTokenizerSpec spec = byte_spec("gpt-2", {{"ab", 0, TokenKind::control}}, {"a b"});
  const auto made = tokenizer_from_gguf(spec);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->encode("ab", false, false), (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ((*made)->encode("ab", false, true), std::vector<int32_t>{256});
}

TEST(TokenizerGguf, UserDefinedTokensAreFoundInUntrustedText) {
  const auto made = tokenizer_from_gguf(byte_spec(
      "gpt-2", {{"    ", 0, TokenKind::user_defined}, {"  ", 0, TokenKind::user_defined}}, {}));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->encode("a      b", false, false), (std::vector<int32_t>{'a', 256, 257, 'b'}));
  EXPECT_FALSE((*made)->is_special(256));
}

TEST(TokenizerGguf, DuplicatePiecesKeepTheFirst) {
  const auto made = tokenizer_from_gguf(byte_spec("gpt-2", {{"a", 0, {}}, {"", 0, {}}}, {}));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->encode("a", false, true), std::vector<int32_t>{'a'});
  EXPECT_EQ((*made)->decode(std::vector<int32_t>{256, 257}, true), "a");
}

TEST(Regex, EnginesAreChosenByMeaning) {
  const auto compiled = [](std::string_view pattern) { return *Regex::compile(pattern); };
  EXPECT_TRUE(compiled("a|\\p{L}+")->uses_pcre());
  EXPECT_FALSE(compiled("[a-z&&[^b]]+")->uses_pcre());  // an intersection
  EXPECT_FALSE(compiled("\\h+")->uses_pcre());          // hex digits
  std::vector<TextSpan> found;
  compiled("[a-z&&[^b]]+")->find_all("abc&", found);
  EXPECT_EQ(found, (std::vector<TextSpan>{{0, 1}, {2, 3}}));
  found.clear();
  compiled("\\s")->find_all("\xE1\xA0\x8E ", found);  // U+180E is no white space
  EXPECT_EQ(found, (std::vector<TextSpan>{{3, 4}}));
  found.clear();
  compiled("x*")->find_all("axxb", found);  // empty matches do not count
  EXPECT_EQ(found, (std::vector<TextSpan>{{1, 3}}));
  EXPECT_FALSE(Regex::compile("(").ok());
  EXPECT_FALSE(Regex::compile(std::string(1 << 20, 'a')).ok());
  EXPECT_FALSE(Regex::compile("\xFF").ok());
  found.clear();
  compiled(Regex::escape("a.(b)[c]"))->find_all("a.(b)[c]", found);
  EXPECT_EQ(found.size(), 1u);
}

TEST(Regex, CatastrophicPatternsEnd) {
  std::vector<TextSpan> found;
  (*Regex::compile("(a+)+$|(x+x+)+y"))
      ->find_all(std::string(40, 'x') + std::string(40, 'a') + "b", found);
  SUCCEED();
}

}  // namespace
}  // namespace pagefold
