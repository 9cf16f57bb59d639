#include "bench/stream_client.h"

#include <gtest/gtest.h>

namespace pagefold::bench {
namespace {

TEST(Load, Urls) {
  EXPECT_EQ(*server_base("http://127.0.0.1:8000/v1/"), "http://127.0.0.1:8000");
  EXPECT_EQ(*server_base("http://[::1]:81/llm"), "http://[::1]:81/llm");
  EXPECT_EQ(*server_base("https://name"), "https://name");
  for (const char* bad : {"ftp://x", "x:1", "http://", "http://x:", "http://x:1a", "http://a b"}) {
    EXPECT_FALSE(server_base(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace pagefold::bench
