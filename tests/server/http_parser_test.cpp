#include "server/http_parser.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace pagefold {
namespace {

// Feeds all of `text` in pieces of `piece` bytes; what follows the message stays in `rest`.
struct Parsed {
  HttpParser parser;
  std::string rest;
};
Parsed parse(std::string_view text, size_t piece, HttpParser::Limits limits = {}) {
  Parsed p{HttpParser(limits), {}};
  for (size_t at = 0; at < text.size(); at += piece) {
    p.rest += text.substr(at, piece);
    for (size_t used = 1; used > 0 && !p.parser.failed();) {
      used = p.parser.feed(p.rest);
      p.rest.erase(0, used);
    }
  }
  return p;
}

TEST(HttpParser, ReadsHeadBodyAndWhatFollows) {
  const std::string text =
      "POST /v1/x?a=b HTTP/1.1\r\nhost: h:80\r\nX-A:\t one \r\nX-B:\r\nContent-Length: 5\r\n\r\n"
      "he\r\nlGET /";
  for (const size_t piece : {size_t{1}, size_t{7}, text.size()}) {
    Parsed p = parse(text, piece);
    ASSERT_TRUE(p.parser.done()) << p.parser.fault().message;
    HttpRequest& r = p.parser.request();
    EXPECT_EQ(r.method, "POST");
    EXPECT_EQ(r.path(), "/v1/x");
    EXPECT_EQ(r.header("x-a"), "one");
    EXPECT_EQ(r.header("X-B"), "");
    EXPECT_EQ(r.body, "he\r\nl");
    EXPECT_EQ(p.rest, "GET /");
    EXPECT_TRUE(p.parser.keep_alive());
  }
}

TEST(HttpParser, ReadsChunksAndDropsTheTrailer) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "5\r\nhello\r\n00A ;name=\"v\"\r\n0123456789\r\n0\r\nAuthorization: Bearer x\r\n\r\nrest";
  for (const size_t piece : {size_t{1}, size_t{3}, text.size()}) {
    Parsed p = parse(text, piece);
    ASSERT_TRUE(p.parser.done()) << p.parser.fault().message;
    EXPECT_EQ(p.parser.request().body, "hello0123456789");
    EXPECT_EQ(p.parser.request().header("Authorization"), "");
    EXPECT_EQ(p.rest, "rest");
  }
}

TEST(HttpParser, StopsAtTheEndOfTheHead) {
  HttpParser p({});
  const std::string head =
      "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\n"
      "Content-Length: 1\r\n\r\n";
  EXPECT_EQ(p.feed(head + "x"), head.size());
  EXPECT_TRUE(p.head_done() && p.expects_continue() && !p.done());
  EXPECT_EQ(p.feed("xy"), 1u);
  EXPECT_TRUE(p.done());
}

TEST(HttpParser, KnowsWhenAConnectionGoesOn) {
  const auto keeps = [](std::string_view version, std::string_view connection) {
    const std::string field =
        connection.empty() ? "" : "Connection: " + std::string(connection) + "\r\n";
    const Parsed p =
        parse("GET / HTTP/" + std::string(version) + "\r\nHost: h\r\n" + field + "\r\n", 100);
    EXPECT_TRUE(p.parser.done());
    return p.parser.keep_alive();
  };
  EXPECT_TRUE(keeps("1.1", ""));
  EXPECT_FALSE(keeps("1.1", "Close"));
  EXPECT_FALSE(keeps("1.1", "te, close"));
  EXPECT_FALSE(keeps("1.0", ""));
  EXPECT_TRUE(keeps("1.0", "Keep-Alive"));
}

struct BadMessage {
  int status;
  std::string_view text;
};

// Each of these is read differently by some pair of programs, or is no HTTP at all.
TEST(HttpParser, RefusesWhatCouldBeReadInTwoWays) {
  using namespace std::string_view_literals;
  const BadMessage cases[] = {
      {400, "GET / HTTP/1.1\r\n\r\n"},  // no Host
      {400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n"},
      {400, "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 3 0\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551619\r\n\r\n"},
      {413, "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n"},
      {501, "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"},
      {501, "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n"},
      {501, "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n"},
      {501, "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;x\r\n\r\n"},
      {501, "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \vchunked\r\n\r\n"},
      {400,
       "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: "
       "chunked\r\n\r\n"},
      {400, "P / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nX: 1\r\n\tContent-Length: 3\r\n\r\n"},
      {400, "P / HTTP/1.1\r\n Host: a\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nX: 1\rContent-Length: 3\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nX: 1\r\rContent-Length: 3\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\nContent-Length: 3\r\n\r\n"},
      {400, "P / HTTP/1.1\nHost: a\n\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nX: \0y\r\n\r\n"sv},
      {400, "P / HTTP/1.1\r\nHost: a\r\nX\0: y\r\n\r\n"sv},
      {400, "P / HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n"},
      {400, "P / HTTP/1.1\r\nHost: a\r\nX Y: 1\r\n\r\n"},
      {400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"},
      {400, "GET / x HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET /\xC3\xA9 HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET health HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET / HTTP/2.0\r\nHost: a\r\n\r\n"},
      {400, "GET / http/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET /\r\n\r\n"},
      {400, "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "\x16\x03\x01"},
      {417, "P / HTTP/1.1\r\nHost: a\r\nExpect: the-unexpected\r\n\r\n"},
  };
  for (const BadMessage& bad : cases) {
    for (const size_t piece : {size_t{1}, bad.text.size()}) {
      const Parsed p = parse(bad.text, piece);
      EXPECT_EQ(p.parser.fault().status, bad.status) << bad.text;
      EXPECT_FALSE(p.parser.done());
    }
  }
}

TEST(HttpParser, RefusesChunksThatCouldBeReadInTwoWays) {
  using namespace std::string_view_literals;
  const std::string head = "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const BadMessage cases[] = {
      {400, "zz\r\n"},
      {400, "\r\n"},
      {400, ";x\r\n"},
      {400, "0x1\r\nx\r\n"},
      {400, "+1\r\nx\r\n"},
      {400, " 1\r\nx\r\n"},
      {400, "-1\r\nx\r\n"},
      {400, "1 2\r\nx\r\n"},
      {400, "1\nx\r\n"},
      {400, "1\r\nxy\r\n"},
      {400, "1\r\nx\n0\r\n"},
      {400, "1;a\rb\r\nx\r\n"},
      {400, "1;\0\r\n"sv},
      {400, "0\r\n folded\r\n\r\n"},
      {400, "0\r\nno colon\r\n\r\n"},
      {413, "ffffffff\r\n"},
      {413, "fffffffffffffffff\r\n"},
  };
  for (const BadMessage& bad : cases) {
    for (const size_t piece : {size_t{1}, size_t{1000}}) {
      const Parsed p = parse(head + std::string(bad.text), piece);
      EXPECT_EQ(p.parser.fault().status, bad.status) << bad.text;
    }
  }
}

TEST(HttpParser, BoundsEverything) {
  const HttpParser::Limits limits{.max_header_bytes = 300, .max_fields = 4, .max_body_bytes = 10};
  const auto status = [&](const std::string& text) {
    const Parsed p = parse(text, 11, limits);
    return p.parser.failed() ? p.parser.fault().status : p.parser.done() ? 200 : 0;
  };
  const std::string line = "P / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(status(line + "X: " + std::string(300, 'x')), 431);
  EXPECT_EQ(status("P /" + std::string(300, 'x')), 431);
  EXPECT_EQ(status(line + "A: 1\r\nB: 1\r\nC: 1\r\n\r\n"), 200);
  EXPECT_EQ(status(line + "A: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\n\r\n"), 431);
  EXPECT_EQ(status(line + "Content-Length: 11\r\n\r\n"), 413);
  const std::string chunked = line + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status(chunked + "6\r\n123456\r\n5\r\n"), 413);
  EXPECT_EQ(status(chunked + "6\r\n123456\r\n4\r\n1234\r\n0\r\n\r\n"), 200);
  EXPECT_EQ(status(chunked + "6;" + std::string(5000, 'e') + "\r\n"), 400);
  EXPECT_EQ(status(chunked + "0\r\nT: " + std::string(300, 't') + "\r\n\r\n"), 431);
  EXPECT_EQ(status(chunked + "0\r\nA: 1\r\nB: 1\r\nC: 1\r\n\r\n"), 431);
}

}  // namespace
}  // namespace pagefold
