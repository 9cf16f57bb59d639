#include "bench/load.h"

#include <gtest/gtest.h>

#include "bench/stream_client.h"

namespace pagefold::bench {
namespace {

TEST(Load, Quantiles) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({3}, 0.9), 3);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(quantile({1, 2, 3, 4, 5}, 1), 5);
  EXPECT_EQ(quantile({1, 2, 3, 4, 5}, 0), 1);
}

TEST(Load, Urls) {
  const auto a = parse_server_url("http://127.0.0.1:8000/v1/");
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a->host, "127.0.0.1");
  EXPECT_EQ(a->port, "8000");
  EXPECT_EQ(a->path, "");
  const auto b = parse_server_url("http://[::1]:81/llm");
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(b->host, "::1");
  EXPECT_EQ(b->port, "81");
  EXPECT_EQ(b->path, "/llm");
  EXPECT_EQ(parse_server_url("http://name")->port, "80");
  for (const char* bad :
       {"https://x", "x:1", "http://", "http://x:", "http://x:1a", "http://a b"}) {
    EXPECT_FALSE(parse_server_url(bad).ok()) << bad;
  }
}

// However the bytes are cut, the body is the same.
TEST(Load, ReadsChunksByteByByte) {
  const std::string text =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n, big "
      "sea!\r\n0\r\n\r\n";
  for (size_t step : {1u, 2u, 7u, 1000u}) {
    HttpAnswer answer;
    std::string body;
    for (size_t at = 0; at < text.size() && !answer.done(); at += step) {
      ASSERT_TRUE(answer.feed(text.substr(at, step), body).ok());
    }
    EXPECT_TRUE(answer.done());
    EXPECT_EQ(answer.status(), 200);
    EXPECT_EQ(body, "hello, big sea!") << step;
  }
}

TEST(Load, ReadsLengthsAndRefusesNonsense) {
  HttpAnswer answer;
  std::string body;
  ASSERT_TRUE(answer.feed("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", body).ok());
  EXPECT_TRUE(answer.done());
  EXPECT_EQ(answer.status(), 404);
  EXPECT_EQ(body, "{}");
  for (const char* bad : {"SSH-2.0-x\r\n\r\n", "HTTP/1.1 abc\r\n\r\n",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                          "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n"}) {
    HttpAnswer other;
    EXPECT_FALSE(other.feed(bad, body).ok()) << bad;
  }
  HttpAnswer cut;
  ASSERT_TRUE(cut.feed("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", body).ok());
  EXPECT_FALSE(cut.end()) << "five bytes are missing";
}

}  // namespace
}  // namespace pagefold::bench
