// A blocking TCP client for tests: raw bytes out, HTTP answers in. Every read has a timeout, so
// that a broken server fails a test and does not hang it.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace pagefold::test {

struct Answer {
  int status = 0;  // 0: nothing came
  std::string head, body;
};

class SocketClient {
 public:
  explicit SocketClient(int port, int receive_buffer = 0, int timeout_s = 10)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    const timeval timeout{timeout_s, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    const int one = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~SocketClient() { close(); }
  SocketClient(SocketClient&& o) noexcept
      : fd_(std::exchange(o.fd_, -1)), connected_(o.connected_), buffer_(std::move(o.buffer_)) {}
  SocketClient(const SocketClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // false: end of stream, reset or timeout.
  bool read_more() {
    char chunk[65536];
    const ssize_t n = recv(fd_, chunk, sizeof chunk, 0);
    if (n <= 0) return false;
    buffer_.append(chunk, static_cast<size_t>(n));
    return true;
  }
  // Everything up to and including `mark` (taken out of the buffer); "" when it does not come.
  std::string read_until(std::string_view mark) {
    size_t at;
    while ((at = buffer_.find(mark)) == std::string::npos) {
      if (!read_more()) return {};
    }
    return take(at + mark.size());
  }
  std::string read_to_end() {
    while (read_more()) {
    }
    return std::exchange(buffer_, {});
  }
  // One whole answer; chunked bodies are joined.
  Answer read_answer(bool head_only = false) {
    Answer a;
    a.head = read_until("\r\n\r\n");
    if (a.head.size() < 12) return a;
    a.status = std::atoi(a.head.c_str() + 9);
    if (head_only || a.status == 204 || a.status == 100) return a;
    if (a.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      for (;;) {
        const std::string size = read_until("\r\n");
        const size_t n = std::strtoul(size.c_str(), nullptr, 16);
        if (size.empty()) break;
        a.body += take_exactly(n);
        take_exactly(2);
        if (n == 0) break;
      }
    } else if (const size_t at = a.head.find("Content-Length: "); at != std::string::npos) {
      a.body = take_exactly(std::strtoul(a.head.c_str() + at + 16, nullptr, 10));
    } else {
      a.body = read_to_end();
    }
    return a;
  }
  Answer get(std::string_view path) {
    send("GET " + std::string(path) + " HTTP/1.1\r\nHost: t\r\n\r\n");
    return read_answer();
  }
  Answer post(std::string_view path, std::string_view body, std::string_view extra_headers = "") {
    send(post_text(path, body, extra_headers));
    return read_answer();
  }
  static std::string post_text(std::string_view path, std::string_view body,
                               std::string_view extra_headers = "") {
    return "POST " + std::string(path) +
           " HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n" + std::string(extra_headers) + "\r\n" +
           std::string(body);
  }

 private:
  std::string take(size_t n) {
    std::string out = buffer_.substr(0, n);
    buffer_.erase(0, n);
    return out;
  }
  std::string take_exactly(size_t n) {
    while (buffer_.size() < n && read_more()) {
    }
    return take(std::min(n, buffer_.size()));
  }
  int fd_;
  bool connected_ = false;
  std::string buffer_;
};

}  // namespace pagefold::test
