#include "text/stream_decoder.h"

#include "recorded.h"
#include "text/utf8.h"
#include "tiny_tokenizers.h"

namespace pagefold {
namespace {

using testing::FixedTokens;

// Pushes `text` cut after the bytes whose bit is set; the whole stream and what it stopped at.
struct Streamed {
  std::string text;
  bool stopped;
  std::vector<std::string> chunks;
};
Streamed stream(const std::vector<std::string>& pieces, StreamDecoder::Options options) {
  const FixedTokens tokens(pieces);
  StreamDecoder decoder(tokens, std::move(options));
  Streamed out{};
  for (size_t i = 0; i < pieces.size(); ++i) {
    out.chunks.push_back(decoder.push(static_cast<int32_t>(i)));
    out.text += out.chunks.back();
  }
  out.text += decoder.finish();
  out.stopped = decoder.stopped();
  return out;
}
std::vector<std::string> cut(const std::string& text, uint32_t mask) {
  std::vector<std::string> pieces(1);
  for (size_t i = 0; i < text.size(); ++i) {
    pieces.back() += text[i];
    if ((mask >> i) & 1u) pieces.emplace_back();
  }
  return pieces;
}

TEST(StreamDecoder, CharactersCutAnywhereComeWhole) {
  const std::string text = "a\xF0\x9F\x98\x80\xC3\xA9\xE4\xBD\xA0z";  // a, emoji, e acute, CJK, z
  for (uint32_t mask = 0; mask < (1u << text.size()); ++mask) {
    const Streamed out = stream(cut(text, mask), {});
    ASSERT_EQ(out.text, text) << mask;
    for (const std::string& chunk : out.chunks) ASSERT_TRUE(is_valid_utf8(chunk)) << mask;
  }
}

TEST(StreamDecoder, StopStringsCutAnywhereNeverShow) {
  const std::string stop = "\n\nUser:";
  const std::string text = "Hi!" + stop + " more";
  for (uint32_t mask = 0; mask < (1u << text.size()); ++mask) {
    const Streamed out = stream(cut(text, mask), {.stop = {stop}});
    ASSERT_EQ(out.text, "Hi!") << mask;
    ASSERT_TRUE(out.stopped);
    ASSERT_EQ(stream(cut(text, mask), {.stop = {stop}, .include_stop = true}).text, "Hi!" + stop);
  }
}

// A broken byte shows as U+FFFD, so a stop string may contain one, wherever the tokens are cut.
TEST(StreamDecoder, StopStringsWithReplacementCharacters) {
  const std::string bad = "\xEF\xBF\xBD";   // U+FFFD
  const std::string text = "AB\xE2\x82 C";  // the beginning of a euro sign
  for (uint32_t mask = 0; mask < (1u << text.size()); ++mask) {
    for (const std::string& stop : {"B" + bad, bad + " C", "B" + bad + " C", bad}) {
      const Streamed out = stream(cut(text, mask), {.stop = {stop}});
      ASSERT_EQ(out.text, stop[0] == 'B' ? "A" : "AB") << stop << ' ' << mask;
      ASSERT_TRUE(out.stopped);
    }
    const std::string shown = "AB" + bad + " C";
    ASSERT_EQ(stream(cut(text, mask), {.stop = {"B" + bad + "C", bad + bad}}).text, shown);
  }
}

TEST(StreamDecoder, StopStringsThatBeginInsideATokensHalfCharacter) {
  const std::string text = "xB\xE2\x82\xAC!z";  // B, euro sign
  for (uint32_t mask = 0; mask < (1u << text.size()); ++mask) {
    for (const std::string stop : {"B\xE2\x82\xAC", "\xE2\x82\xAC!", "B\xE2\x82\xAC!z"}) {
      ASSERT_EQ(stream(cut(text, mask), {.stop = {stop}}).text, stop[0] == 'B' ? "x" : "xB")
          << mask;
    }
  }
}

TEST(StreamDecoder, AHalfCharacterAtTheEndCompletesAStopString) {
  const std::string bad = "\xEF\xBF\xBD";
  const Streamed out = stream({"A", "B\xE2"}, {.stop = {"B" + bad}});
  EXPECT_EQ(out.text, "A");
  EXPECT_TRUE(out.stopped);
  EXPECT_EQ(stream({"A", "B\xE2"}, {.stop = {"B" + bad}, .include_stop = true}).text, "AB" + bad);
  EXPECT_EQ(stream({"A", "B\xE2"}, {.stop = {"B" + bad + "C"}}).text, "AB" + bad);
}

TEST(StreamDecoder, NearMissesComeOutInFull) {
  for (const std::string text :
       {"a\n\nUse it", "a\n\n\nUser", "\n\nUser", "\n\nUs\n\nUser;", "\n"}) {
    for (uint32_t mask = 0; mask < (1u << text.size()); ++mask) {
      const Streamed out = stream(cut(text, mask), {.stop = {"\n\nUser:"}});
      ASSERT_EQ(out.text, text) << mask;
      ASSERT_FALSE(out.stopped);
    }
  }
  // Overlaps: the third newline starts the stop string that counts.
  const Streamed out = stream(cut("a\n\n\nUser:", 0xFFFF), {.stop = {"\n\nUser:"}});
  EXPECT_EQ(out.text, "a\n");
}

TEST(StreamDecoder, HoldsBackNoMoreThanNeeded) {
  const FixedTokens tokens({"x\n", "y", "\xF0\x9F", "\x98\x80", "\n\nUs", "!", "z"});
  StreamDecoder decoder(tokens, {.stop = {"\n\nUser:", "END"}});
  EXPECT_EQ(decoder.push(0), "x");
  EXPECT_EQ(decoder.push(1), "\ny");
  EXPECT_EQ(decoder.push(2), "");
  EXPECT_EQ(decoder.push(3), "\xF0\x9F\x98\x80");
  EXPECT_EQ(decoder.push(4), "");
  EXPECT_EQ(decoder.push(5), "\n\nUs!");
  EXPECT_EQ(decoder.push(6), "z");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, AnOpenStopBeforeAnOpenCharacterIsReleased) {
  const FixedTokens tokens({"a\n\xC3", "\xA9", "\xE4\xBD"});
  StreamDecoder decoder(tokens, {.stop = {"\nx", "\n\xC3\xA8"}});
  EXPECT_EQ(decoder.push(0), "a");  // may still become the second stop string
  EXPECT_EQ(decoder.push(1), "\n\xC3\xA9");
  EXPECT_EQ(decoder.push(2), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
}

TEST(StreamDecoder, TheStopThatEndsFirstWinsWhateverTheTokens) {
  const std::vector<std::string> stops = {"bcd", "ab", "xab", ""};
  for (uint32_t mask = 0; mask < 64; ++mask) {
    const std::vector<std::string> pieces = cut("xxabcd", mask);
    const FixedTokens tokens(pieces);
    StreamDecoder decoder(tokens, {.stop = stops});
    std::string text;
    for (size_t i = 0; i < pieces.size(); ++i) text += decoder.push(static_cast<int32_t>(i));
    EXPECT_EQ(text + decoder.finish(), "x");
    EXPECT_EQ(decoder.stop_string(), "xab");  // of two that end together the longer
  }
}

TEST(StreamDecoder, InvalidBytesBecomeReplacementCharacters) {
  const Streamed out = stream({"a\xFF", "\xF0\x9F", "b", "\xED\xA0\x80"}, {});
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(out.text, "a" + bad + bad + "b" + bad + bad + bad);
  EXPECT_EQ(out.chunks[0], "a" + bad);
}

TEST(StreamDecoder, SpecialTokensAndTheFirstSpace) {
  const FixedTokens tokens({" Hi", " you", "<s>"}, 2, true);
  StreamDecoder first(tokens, {.at_text_start = true});
  EXPECT_EQ(first.push(2), "");
  EXPECT_EQ(first.push(0), "Hi");
  EXPECT_EQ(first.push(0), " Hi");
  StreamDecoder later(tokens, {.skip_special = false});
  EXPECT_EQ(later.push(0), " Hi");
  EXPECT_EQ(later.push(2), "<s>");
}

TEST(StreamDecoder, StreamEqualsTheWholeAnswerOnRecordedLines) {
  for (const std::string name : {"llama3", "llama2", "unigram"}) {
    auto made = tokenizer_from_json(testing::read_data(name + ".json"), "");
    ASSERT_TRUE(made.ok()) << made.status();
    for (const std::string& line : testing::recorded_lines()) {
      const std::vector<int32_t> ids = (*made)->encode(line, true, true);
      StreamDecoder decoder(**made, {.at_text_start = true});
      std::string text;
      for (const int32_t id : ids) text += decoder.push(id);
      ASSERT_EQ(text + decoder.finish(), (*made)->decode(ids, true)) << name << ": " << line;
    }
  }
}

}  // namespace
}  // namespace pagefold
