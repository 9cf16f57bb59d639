#include "api/stop_watch.h"

#include <gtest/gtest.h>

#include "support/byte_tokenizer.h"

namespace pagefold {
namespace {

// Tokens of a byte each: what is shown is counted in characters.
struct Case {
  std::string text;
  std::vector<std::string> stop;
  int64_t ends_after, shown;
};

TEST(StopWatch, KeepsTheTokensOfTheTextBefore) {
  const test::ByteTokenizer tokenizer;
  for (const Case& c : {Case{"one two three", {"two"}, 7, 4}, Case{"stop", {"stop"}, 4, 0},
                        Case{"aab", {"ab", "xyz"}, 3, 1}, Case{"nothing", {"zz"}, -1, 0},
                        // Both bytes of the character go with it.
                        Case{"\u00e9\u00e9|", {"|"}, 5, 4}}) {
    StopWatch watch(tokenizer, {.stop = c.stop});
    int64_t n = 0, ended = -1;
    for (const char byte : c.text) {
      ++n;
      if (watch.ends_with(static_cast<uint8_t>(byte))) {
        ended = n;
        break;
      }
    }
    EXPECT_EQ(ended, c.ends_after) << c.text;
    if (ended >= 0) EXPECT_EQ(watch.shown_tokens(), c.shown) << c.text;
  }
}

TEST(StopWatch, TheMatchIsShownWhenAskedFor) {
  const test::ByteTokenizer tokenizer;
  StopWatch watch(tokenizer, {.stop = {"b"}, .include_stop = true});
  EXPECT_FALSE(watch.ends_with('a'));
  EXPECT_TRUE(watch.ends_with('b'));
  EXPECT_EQ(watch.shown_tokens(), 2);
}

// Whether there is a session or not: the engine ends the answer, and its usage says so.
TEST(StopWatch, OnlyForStopStrings) {
  const test::ByteTokenizer tokenizer;
  Request r;
  watch_for_stop(tokenizer, {}, r);
  EXPECT_EQ(r.watch, nullptr);
  watch_for_stop(tokenizer, {.stop = {"b"}}, r);
  EXPECT_NE(r.watch, nullptr);
}

}  // namespace
}  // namespace pagefold
