// tokenizer.json files written and used by Hugging Face tokenizers.
#include "base/json.h"
#include "recorded.h"
#include "text/byte_map.h"
#include "text/utf8.h"

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

// A model of the 256 byte characters, in the order of their code points.
Json byte_model() {
  std::vector<std::string> alphabet;
  for (int b = 0; b < 256; ++b) {
    alphabet.push_back(utf8_of(byte_to_char(static_cast<unsigned char>(b))));
  }
  std::sort(alphabet.begin(), alphabet.end());
  Json vocab = Json::object();
  for (size_t i = 0; i < alphabet.size(); ++i) vocab[alphabet[i]] = i;
  return {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}};
}

TEST(TokenizerJson, EveryStepGivesTheRecordedPieces) {
  const auto cases = parse_json(testing::read_data("steps.json"));
  ASSERT_TRUE(cases.ok()) << cases.status();
  const auto& lines = testing::recorded_lines();
  for (const Json& item : *cases) {
    const std::string name = item["name"];
    const Json file = {{"model", byte_model()},
                       {"normalizer", item["normalizer"]},
                       {"pre_tokenizer", item["pre_tokenizer"]}};
    const auto made = tokenizer_from_json(dump_json(file), "");
    ASSERT_TRUE(made.ok()) << name << ": " << made.status();
    const std::string hashes = item["hashes"];
    for (size_t group = 0; group * 40 < lines.size(); ++group) {
      std::vector<int32_t> ids;
      for (size_t i = group * 40; i < group * 40 + 40; ++i) {
        const auto more = (*made)->encode(lines[i], false, true);
        ids.insert(ids.end(), more.begin(), more.end());
      }
      EXPECT_EQ(testing::hash_ids(ids) >> 8, std::stoul(hashes.substr(group * 7, 6), nullptr, 16))
          << name << ", lines " << group * 40 << " to " << group * 40 + 39;
    }
  }
}

// Changes one field of a good file (by JSON pointer) and gives the message that follows.
std::string message_after(const std::string& pointer, const Json& value) {
  Json file = {{"model", byte_model()}, {"added_tokens", Json::array()}};
  file[Json::json_pointer(pointer)] = value;
  const auto made = tokenizer_from_json(dump_json(file), "");
  return made.ok() ? "accepted" : message_of(made.status());
}

TEST(TokenizerJson, UnknownTypesAreRefusedByName) {
  const auto typed = [](const char* type) { return Json{{"type", type}}; };
  EXPECT_NE(message_after("/normalizer", typed("Zap")).find("\"Zap\""), std::string::npos);
  EXPECT_NE(message_after("/pre_tokenizer", typed("Zap")).find("\"Zap\""), std::string::npos);
  EXPECT_NE(message_after("/decoder", typed("Zap")).find("\"Zap\""), std::string::npos);
  EXPECT_NE(message_after("/post_processor", typed("Zap")).find("\"Zap\""), std::string::npos);
  EXPECT_NE(message_after("/model/type", "WordPiece").find("\"WordPiece\""), std::string::npos);
  EXPECT_NE(message_after("/model/dropout", 0.5).find("dropout"), std::string::npos);
  EXPECT_NE(message_after("/model/end_of_word_suffix", "</w>").find("suffix"), std::string::npos);
}

TEST(TokenizerJson, DamagedFilesAreRefused) {
  EXPECT_EQ(message_after("/model/dropout", nullptr), "accepted");
  const std::vector<std::pair<std::string, Json>> cases = {
      {"/model", 3},
      {"/model/vocab", "x"},
      {"/model/vocab/zz", "x"},
      {"/model/vocab/zz", -1},
      {"/model/vocab/zz", 1 << 30},
      {"/model/vocab/zz", 5},                   // taken
      {"/model/merges", Json::array({"a b"})},  // "ab" is no token
      {"/model/merges", Json::array({"ab"})},
      {"/model/merges", Json::array({Json::array({"a"})})},
      {"/added_tokens", 7},
      {"/added_tokens", Json::array({1})},
      {"/added_tokens", Json::array({Json{{"content", "<x>"}, {"id", 1ll << 40}}})},
      {"/added_tokens", Json::array({Json{{"content", std::string(600, 'x')}, {"id", 256}}})},
      {"/normalizer", Json{{"type", "Sequence"}}},
      {"/normalizer", Json{{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}},
      {"/normalizer", Json{{"type", "Prepend"}, {"prepend", std::string(1000, 'x')}}},
      {"/pre_tokenizer", Json{{"type", "Split"}, {"pattern", Json{{"Regex", "(a"}}}}},
      {"/pre_tokenizer", Json{{"type", "Split"}, {"pattern", 1}}},
      {"/post_processor", Json{{"type", "TemplateProcessing"}, {"single", Json::array({1})}}},
      {"/decoder", Json{{"type", "Strip"}, {"content", " "}, {"start", -1}}},
  };
  for (const auto& [pointer, value] : cases) {
    const std::string message = message_after(pointer, value);
    EXPECT_TRUE(message.starts_with("tokenizer.json: ")) << pointer << ": " << message;
  }
  for (const std::string text : {"", "[]", "{", "3", "{}", "{\"model\":{}}"}) {
    EXPECT_FALSE(tokenizer_from_json(text, "").ok()) << text;
  }
  EXPECT_FALSE(tokenizer_from_json(std::string(100000, '['), "").ok());
  const std::string whole = testing::read_data("qwen2.json");
  for (size_t n = 0; n < whole.size(); n += 97) {
    EXPECT_FALSE(tokenizer_from_json(std::string_view(whole).substr(0, n), "").ok()) << n;
  }
}

TEST(TokenizerJson, ConfigNamesTheSpecialTokens) {
  const std::string json = testing::read_data("llama2.json");
  const auto load_with = [&](std::string_view config) {
    return *tokenizer_from_json(json, config);
  };
  auto tokenizer = load_with(R"({"bos_token":"<s>","eos_token":{"content":"</s>"}})");
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->encode("a", true, true)[0], 1);
  tokenizer =
      load_with(R"({"bos_token":"<s>","add_bos_token":false,"tokenizer_class":"LlamaTokenizer"})");
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_NE(tokenizer->encode("a", true, true)[0], 1);
  // Classes that leave the template alone.
  tokenizer = load_with(
      R"({"bos_token":"<s>","add_bos_token":false,"tokenizer_class":"PreTrainedTokenizerFast"})");
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_FALSE(tokenizer_from_json(json, "{").ok());
}

TEST(TokenizerJson, ForgedSpecialTokensAreText) {
  for (const std::string name : {"llama3", "qwen2", "llama2", "unigram"}) {
    const auto tokenizer = load(name);
    for (const std::string text : {"<|im_start|>system", "<s>x</s>", "a<|endoftext|>"}) {
      for (const int32_t id : tokenizer->encode(text, false, false)) {
        EXPECT_FALSE(tokenizer->is_special(id) && tokenizer->piece(id) != "<unk>") << text;
      }
    }
  }
  const auto tokenizer = load("llama3");
  const auto parsed = tokenizer->encode("<|im_start|>x", false, true);
  EXPECT_EQ(tokenizer->piece(parsed[0]), "<|im_start|>");
  EXPECT_EQ(tokenizer->decode(parsed, true), "x");
  EXPECT_EQ(tokenizer->decode(parsed, false), "<|im_start|>x");
}

}  // namespace
}  // namespace pagefold
