#include "net/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

namespace pagefold {
namespace {

// Takes one connection, keeps the request, and answers with `pieces`, each in a segment of its own.
class OneAnswer {
 public:
  explicit OneAnswer(std::vector<std::string> pieces, bool closes = true)
      : pieces_(std::move(pieces)), closes_(closes) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* address = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(bind(listener_, address, size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, address, &size), 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~OneAnswer() {
    thread_.join();
    close(listener_);
    if (connection_ >= 0) close(connection_);
  }
  std::string url(const std::string& path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  const std::string& request() {  // after the answer
    return request_;
  }

 private:
  void serve() {
    connection_ = accept(listener_, nullptr, nullptr);
    char bytes[4096];
    size_t body = 0, head = std::string::npos;
    while (head == std::string::npos || request_.size() < head + 4 + body) {
      const ssize_t n = recv(connection_, bytes, sizeof bytes, 0);
      if (n <= 0) return;
      request_.append(bytes, static_cast<size_t>(n));
      head = request_.find("\r\n\r\n");
      const size_t length = request_.find("Content-Length: ");
      if (length != std::string::npos) body = std::stoul(request_.substr(length + 16));
    }
    for (const std::string& piece : pieces_)
      send(connection_, piece.data(), piece.size(), MSG_NOSIGNAL);
    if (closes_) shutdown(connection_, SHUT_WR);
  }

  std::vector<std::string> pieces_;
  const bool closes_;
  int listener_ = -1, connection_ = -1, port_ = 0;
  std::string request_;
  std::thread thread_;
};

struct Got {
  Result<HttpReply> reply;
  std::string body;
};
Got post(const OneAnswer& server, double total_s = 20) {
  std::string body;
  HttpSink sink;
  sink.body = [&](std::string_view piece) -> Status {
    body += piece;
    return ok_status();
  };
  auto reply = http_post({server.url("/v1/x"), "secret", "{\"a\": 1}", total_s}, sink);
  return {std::move(reply), body};
}

std::vector<std::string> cut(const std::string& text, size_t step) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size(); at += step) out.push_back(text.substr(at, step));
  return out;
}

// However the bytes are cut, the body is the same.
TEST(HttpClient, ReadsChunksByteByByte) {
  const std::string text =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n, big "
      "sea!\r\n0\r\n\r\n";
  for (const size_t step : {1u, 2u, 7u, 1000u}) {
    OneAnswer server(cut(text, step));
    const Got got = post(server);
    ASSERT_TRUE(got.reply.ok()) << message_of(got.reply.status());
    EXPECT_EQ(got.reply->status, 200);
    EXPECT_EQ(got.body, "hello, big sea!") << step;
  }
}

TEST(HttpClient, PostsJsonWithTheToken) {
  std::string request;
  {
    OneAnswer server({"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"});
    const Got got = post(server);
    ASSERT_TRUE(got.reply.ok());
    EXPECT_EQ(got.body, "{}");
    request = server.request();
  }
  EXPECT_TRUE(request.starts_with("POST /v1/x HTTP/1.1\r\n")) << request;
  EXPECT_NE(request.find("Authorization: Bearer secret\r\n"), std::string::npos);
  EXPECT_NE(request.find("Content-Type: application/json\r\n"), std::string::npos);
  EXPECT_TRUE(request.ends_with("\r\n\r\n{\"a\": 1}")) << request;
}

TEST(HttpClient, KeepsTheWordsOfAFailure) {
  OneAnswer server({"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nno", " way"});
  const Got got = post(server);
  ASSERT_TRUE(got.reply.ok());
  EXPECT_EQ(got.reply->status, 404);
  EXPECT_EQ(got.reply->failure, "no way");
  EXPECT_EQ(got.body, "");
}

TEST(HttpClient, RefusesNonsense) {
  for (const char* bad : {"SSH-2.0-x\r\n\r\n", "HTTP/1.1 abc\r\n\r\n",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                          "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
                          "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"}) {
    OneAnswer server({bad});
    EXPECT_FALSE(post(server).reply.ok()) << bad;
  }
}

TEST(HttpClient, GivesUpWhenTheTimeIsOver) {
  OneAnswer server({"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"}, false);
  EXPECT_EQ(post(server, 0.05).reply.status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace pagefold
