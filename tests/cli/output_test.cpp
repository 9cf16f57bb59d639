#include "cli/output.h"

#include <gtest/gtest.h>

namespace pagefold {
namespace {

TEST(Output, ControlsAreLeftOut) {
  EXPECT_EQ(without_controls("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(without_controls("\x1b[31mred\x1b[0m\a\r\x7f"), "[31mred[0m");
  // U+009B is a one-character escape; U+00A0 and U+20AC are text.
  EXPECT_EQ(without_controls("\xC2\x9B"
                             "31m\xC2\xA0\xE2\x82\xAC"),
            "31m\xC2\xA0\xE2\x82\xAC");
  EXPECT_EQ(without_controls("\xC2"), "\xC2");
}

// What a hostile file holds is quoted, but not by the megabyte.
TEST(Output, LongMessagesKeepTheirEnds) {
  ::testing::internal::CaptureStderr();
  report(bad_data("config.json: method '{}' is unknown", std::string(100000, 'a')));
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_LT(text.size(), 2100u);
  EXPECT_TRUE(text.starts_with("pagefold: error: config.json: method 'aaa"));
  EXPECT_TRUE(text.ends_with("aaa' is unknown\n"));
  EXPECT_NE(text.find("bytes]"), std::string::npos);
}

TEST(Output, ExitCodeFollowsTheKindOfFailure) {
  EXPECT_EQ(report(bad_input("a flag")), 2);
  EXPECT_EQ(report(not_found("a file")), 1);
  EXPECT_EQ(report(bad_data("a file")), 1);
}

}  // namespace
}  // namespace pagefold
