#include "server/request_ids.h"

#include <gtest/gtest.h>

#include <set>

namespace pagefold {
namespace {

TEST(RequestIds, AreNew) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(new_id("cmpl-"));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_EQ(seen.begin()->size(), 37u);
}

TEST(RequestIds, OfClientsAreWordsOfBoundedLength) {
  EXPECT_TRUE(usable_request_id("a-B.c_1:9"));
  EXPECT_TRUE(usable_request_id(std::string(128, 'x')));
  EXPECT_FALSE(usable_request_id(std::string(129, 'x')));
  for (const auto* bad : {"", "a b", "a\"b", "a\nb", "a=b", "\xC3\xA9"}) {
    EXPECT_FALSE(usable_request_id(bad)) << bad;
  }
}

// The example of W3C Trace Context, and what its grammar excludes.
TEST(RequestIds, TraceparentHasTheFormOfTheRecommendation) {
  const std::string good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  EXPECT_TRUE(valid_traceparent(good));
  EXPECT_TRUE(valid_traceparent("cc" + good.substr(2) + "-later"));
  EXPECT_FALSE(valid_traceparent(good + "-later"));
  EXPECT_FALSE(valid_traceparent("cc" + good.substr(2) + "later"));
  EXPECT_FALSE(valid_traceparent("ff" + good.substr(2)));
  EXPECT_FALSE(valid_traceparent(good.substr(0, 54)));
  EXPECT_FALSE(valid_traceparent("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"));
  EXPECT_FALSE(valid_traceparent("00-" + std::string(32, '0') + "-00f067aa0ba902b7-01"));
  EXPECT_FALSE(
      valid_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-" + std::string(16, '0') + "-01"));
  EXPECT_FALSE(valid_traceparent("00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
  EXPECT_FALSE(valid_traceparent(""));
}

}  // namespace
}  // namespace pagefold
