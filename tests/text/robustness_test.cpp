// Hostile and huge input, and use from many threads.
#include <chrono>
#include <thread>

#include "recorded.h"
#include "text/byte_map.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

std::unique_ptr<Tokenizer> load_fixture(const std::string& name) {
  auto made = tokenizer_from_json(testing::read_data(name + ".json"), "");
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Quadratic work on half a megabyte takes minutes; the limit leaves room for sanitizers and slow
// hosts.
void expect_quick(const Tokenizer& tokenizer, const std::string& text, const std::string& what) {
  const auto start = std::chrono::steady_clock::now();
  const auto ids = tokenizer.encode(text, false, true);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 10.0) << what;
  EXPECT_LE(ids.size(), text.size() + 1);
  std::cout << what << ": " << took.count() << " s, " << ids.size() << " ids\n";
}

TEST(Robustness, LongWordsTakeNoQuadraticTime) {
  for (const std::string name : {"llama3", "qwen2", "llama2", "unigram"}) {
    const auto tokenizer = load_fixture(name);
    for (const std::string unit :
         {"a", " ", "\n", "ab", "\xC3\xA9", "e\xCC\x81", "1", "=", "<|im_"}) {
      std::string text;
      while (text.size() < (1u << 19)) text += unit;
      expect_quick(*tokenizer, text, name + " of \"" + (unit == "\n" ? "\\n" : unit) + "\"");
    }
  }
}

TEST(Robustness, EncodingUpToALimitAgreesOrExceedsIt) {
  for (const std::string name : {"llama3", "qwen2", "llama2", "unigram"}) {
    const auto tokenizer = load_fixture(name);
    std::vector<std::string> texts(testing::recorded_lines().begin(),
                                   testing::recorded_lines().begin() + 200);
    for (const std::string unit : {"a", " ", "ab", "e\xCC\x81", "1", "<|im_", "\xE2\x98\x83"}) {
      std::string text;
      while (text.size() < 3000) text += unit;
      texts.push_back(text);
    }
    for (const std::string& text : texts) {
      const auto all = tokenizer->encode(text, true, true);
      for (const size_t limit : {size_t{0}, all.size() / 2, all.size() - 1}) {
        if (limit >= all.size()) continue;
        ASSERT_GT(tokenizer->encode_up_to(text, true, true, limit).size(), limit) << name << text;
      }
      for (const size_t limit : {all.size(), all.size() + 1, SIZE_MAX}) {
        ASSERT_EQ(tokenizer->encode_up_to(text, true, true, limit), all) << name << text;
      }
    }
  }
}

TEST(Robustness, InvalidUtf8IsReplacedNeverFatal) {
  const auto tokenizer = load_fixture("llama3");
  const std::string bad("a\xFF\xC3\x28\xF0\x9F\x00\xED\xA0\x80z", 11);
  const auto ids = tokenizer->encode(bad, true, true);
  EXPECT_EQ(tokenizer->decode(ids, true), sanitize_utf8(bad));
  EXPECT_EQ(ids, tokenizer->encode(sanitize_utf8(bad), true, true));
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string two{static_cast<char>(a), static_cast<char>(b)};
      const std::string back = tokenizer->decode(tokenizer->encode(two, false, false), true);
      ASSERT_EQ(back, sanitize_utf8(two));
    }
  }
}

TEST(Robustness, ThreadsShareATokenizer) {
  const auto tokenizer = load_fixture("llama3");
  const auto& lines = testing::recorded_lines();
  std::vector<uint32_t> expected;
  for (const std::string& line : lines) {
    expected.push_back(testing::hash_ids(tokenizer->encode(line, true, true)));
  }
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < lines.size(); ++i) {
        wrong[t] += testing::hash_ids(tokenizer->encode(lines[i], true, true)) != expected[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(Utf8, RepairsByMaximalParts) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(sanitize_utf8("\xE4\xBD"), bad);
  EXPECT_EQ(sanitize_utf8("\xE4\xBD"
                          "a"),
            bad + "a");
  EXPECT_EQ(sanitize_utf8("\xC0\xAF"), bad + bad);
  EXPECT_EQ(sanitize_utf8("\xF4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(sanitize_utf8("\xF0\x80\x80"), bad + bad + bad);
  EXPECT_EQ(sanitize_utf8("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
  for (char32_t c = 1; c < 0x110000; c += 7) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = utf8_of(c);
    size_t forward = 0, back = text.size();
    ASSERT_TRUE(is_valid_utf8(text));
    ASSERT_EQ(utf8_next(text, forward), c);
    ASSERT_EQ(utf8_prev(text, back), c);
  }
}

TEST(ByteMap, IsABijection) {
  std::string all, mapped, back;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  append_byte_chars(all, mapped);
  EXPECT_TRUE(is_valid_utf8(mapped));
  EXPECT_TRUE(append_char_bytes(mapped, back));
  EXPECT_EQ(back, all);
  EXPECT_EQ(byte_to_char(' '), U'\u0120');
  EXPECT_EQ(byte_to_char('\n'), U'\u010A');
  EXPECT_FALSE(append_char_bytes("a b", back));
  EXPECT_EQ(back, all);
}

}  // namespace
}  // namespace pagefold
