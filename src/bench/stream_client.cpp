#include "bench/stream_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "bench/bandwidth.h"

namespace pagefold::bench {
namespace {

constexpr size_t kMostHead = 64 << 10;
constexpr size_t kMostBody = 64 << 20;
constexpr int64_t kMostChunk = int64_t{1} << 30;

class Socket {
 public:
  Socket() = default;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  Status connect_to(const ServerUrl& server) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int rc = getaddrinfo(server.host.c_str(), server.port.c_str(), &hints, &found)) {
      return absl::UnavailableError(fmt::format("{}: {}", server.text, gai_strerror(rc)));
    }
    std::string why = "no address";
    for (const addrinfo* a = found; a != nullptr && fd_ < 0; a = a->ai_next) {
      fd_ = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
      if (fd_ < 0 || connect(fd_, a->ai_addr, a->ai_addrlen) == 0) continue;
      why = std::strerror(errno);
      close(fd_);
      fd_ = -1;
    }
    freeaddrinfo(found);
    if (fd_ < 0) return absl::UnavailableError(fmt::format("{}: {}", server.text, why));
    return ok_status();
  }
  Status send_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return absl::UnavailableError("the server closed the connection");
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return ok_status();
  }
  // Bytes that have come; 0: the end.
  Result<size_t> receive(char* out, size_t most, double until) {
    const double left = until - seconds();
    pollfd p{fd_, POLLIN, 0};
    if (left <= 0 || poll(&p, 1, static_cast<int>(std::min(left, 1e6) * 1e3) + 1) <= 0) {
      return absl::DeadlineExceededError("the server did not answer in time");
    }
    const ssize_t n = recv(fd_, out, most, 0);
    if (n < 0) return absl::UnavailableError(fmt::format("receiving: {}", std::strerror(errno)));
    return static_cast<size_t>(n);
  }

 private:
  int fd_ = -1;
};

std::string head_of(const ServerUrl& server, std::string_view method, std::string_view path,
                    std::string_view api_key, size_t body_bytes) {
  std::string out =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nAccept: */*\r\n", method,
                  server.path, path, server.host, server.port);
  if (!api_key.empty()) out += fmt::format("Authorization: Bearer {}\r\n", api_key);
  if (method == "POST") {
    out += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body_bytes);
  }
  return out + "\r\n";
}

// Calls take(body so far) whenever some of it came.
template <class Take>
Result<int> exchange(const ServerUrl& server, std::string_view request, double timeout_s,
                     std::string& body, const Take& take) {
  Socket socket;
  PF_TRY(socket.connect_to(server));
  PF_TRY(socket.send_all(request));
  const double until = seconds() + timeout_s;
  HttpAnswer answer;
  char bytes[16 << 10];
  while (!answer.done()) {
    PF_ASSIGN(const size_t n, socket.receive(bytes, sizeof bytes, until));
    if (n == 0) {
      if (!answer.end()) return bad_data("{}: the answer breaks off", server.text);
      break;
    }
    PF_TRY(answer.feed({bytes, n}, body));
    PF_TRY(take(answer.status()));
    if (body.size() > kMostBody) return bad_data("{}: the answer is too long", server.text);
  }
  return answer.status();
}

std::string refusal(int status, const std::string& body) {
  const auto json = parse_json(body);
  if (json.ok() && json->is_object() && json->contains("error")) {
    const Json& e = (*json)["error"];
    if (e.is_string()) return fmt::format("{}: {}", status, e.get<std::string>());
    if (e.is_object() && e.contains("message") && e["message"].is_string()) {
      return fmt::format("{}: {}", status, e["message"].get<std::string>());
    }
  }
  return fmt::format("{}", status);
}

bool has_text(const Json& event) {
  if (!event.contains("choices") || !event["choices"].is_array() || event["choices"].empty()) {
    return false;
  }
  const Json& c = event["choices"][0];
  if (!c.is_object()) return false;
  if (c.contains("text")) return c["text"].is_string() && c["text"] != "";
  return c.contains("delta") && c["delta"].is_object() && c["delta"].contains("content") &&
         c["delta"]["content"].is_string() && c["delta"]["content"] != "";
}

int64_t count_of(const Json& usage, const char* key) {
  return usage.contains(key) && usage[key].is_number_integer() ? usage[key].get<int64_t>() : 0;
}

Status take_event(std::string_view text, double at, StreamAnswer& out) {
  PF_ASSIGN(const Json event, parse_json(text));
  if (!event.is_object()) return bad_data("an event is no object");
  if (event.contains("error")) return bad_data("the answer failed on the server");
  if (has_text(event)) out.piece_s.push_back(at);
  if (event.contains("usage") && event["usage"].is_object()) {
    const Json& usage = event["usage"];
    out.prompt_tokens = count_of(usage, "prompt_tokens");
    out.completion_tokens = count_of(usage, "completion_tokens");
    if (usage.contains("kv")) out.kv = usage["kv"];
  }
  return ok_status();
}

}  // namespace

Status HttpAnswer::read_head() {
  const size_t end = in_.find("\r\n\r\n");
  if (end == std::string::npos) {
    return in_.size() > kMostHead ? bad_data("the head of the answer is too long") : ok_status();
  }
  std::string head = in_.substr(0, end);
  in_.erase(0, end + 4);
  std::transform(head.begin(), head.end(), head.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (!head.starts_with("http/1.") || head.size() < 12) return bad_data("no HTTP answer");
  const auto parsed = std::from_chars(head.data() + 9, head.data() + 12, status_);
  if (parsed.ec != std::errc() || status_ < 100) return bad_data("no HTTP status");
  chunked_ = head.find("\r\ntransfer-encoding: chunked") != std::string::npos;
  const std::string_view length = "\r\ncontent-length:";
  if (const size_t at = head.find(length); at != std::string::npos && !chunked_) {
    const char* p = head.data() + at + length.size();
    while (*p == ' ') ++p;
    if (std::from_chars(p, head.data() + head.size(), left_).ec != std::errc() || left_ < 0) {
      return bad_data("a wrong Content-Length");
    }
    done_ = left_ == 0;
  }
  return ok_status();
}

Status HttpAnswer::read_chunks(std::string& body) {
  while (!done_) {
    if (left_ < 0) {  // a line with the size of the next chunk
      const size_t end = in_.find("\r\n");
      if (end == std::string::npos) {
        return in_.size() > kMostHead ? bad_data("a chunk without a size") : ok_status();
      }
      int64_t size = -1;
      const auto parsed = std::from_chars(in_.data(), in_.data() + end, size, 16);
      if (parsed.ec != std::errc() || size < 0 || size > kMostChunk) {
        return bad_data("a chunk of a wrong size");
      }
      in_.erase(0, end + 2);
      left_ = size;
      done_ = size == 0;
      if (done_) return ok_status();
    }
    const auto n = std::min(in_.size(), static_cast<size_t>(left_));
    body.append(in_, 0, n);
    in_.erase(0, n);
    left_ -= static_cast<int64_t>(n);
    if (left_ > 0 || in_.size() < 2) return ok_status();  // its line end is to come
    in_.erase(0, 2);
    left_ = -1;
  }
  return ok_status();
}

Status HttpAnswer::feed(std::string_view bytes, std::string& body) {
  in_ += bytes;
  if (status_ == 0) {
    PF_TRY(read_head());
    if (status_ == 0 || done_) return ok_status();
  }
  if (chunked_) return read_chunks(body);
  body += in_;
  if (left_ >= 0) {
    left_ -= static_cast<int64_t>(in_.size());
    done_ = left_ <= 0;
  }
  in_.clear();
  return ok_status();
}

Result<ServerUrl> parse_server_url(std::string_view url) {
  ServerUrl out;
  out.text = url;
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    return bad_input("'{}': expected http://HOST:PORT; for https put a proxy before it", url);
  }
  url.remove_prefix(kScheme.size());
  const size_t slash = std::min(url.find('/'), url.size());
  std::string_view authority = url.substr(0, slash);
  out.path = url.substr(slash);
  while (out.path.ends_with('/')) out.path.pop_back();
  if (out.path.ends_with("/v1")) out.path.erase(out.path.size() - 3);
  const size_t bracket = authority.find(']');
  const size_t colon =
      authority.find(':', authority.starts_with('[') && bracket != authority.npos ? bracket : 0);
  out.port = colon < authority.size() ? authority.substr(colon + 1) : "80";
  out.host = authority.substr(0, std::min(colon, authority.size()));
  if (out.host.starts_with('[')) out.host = out.host.substr(1, out.host.size() - 2);
  const bool digits = !out.port.empty() && std::all_of(out.port.begin(), out.port.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
  if (out.host.empty() || !digits || out.text.find_first_of(" \r\n\t") != std::string::npos) {
    return bad_input("'{}': expected http://HOST:PORT", out.text);
  }
  return out;
}

Result<StreamAnswer> stream_completion(const ServerUrl& server, std::string_view path,
                                       std::string_view body, std::string_view api_key,
                                       double timeout_s) {
  StreamAnswer out;
  const double start = seconds();
  std::string text = head_of(server, "POST", path, api_key, body.size());
  text += body;
  std::string got;
  const auto take = [&](int status) -> Status {
    if (status != 200) return ok_status();
    for (size_t end; (end = got.find('\n')) != std::string::npos; got.erase(0, end + 1)) {
      std::string_view line(got.data(), end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.starts_with("data: ") || line == "data: [DONE]") continue;
      PF_TRY(take_event(line.substr(6), seconds() - start, out));
    }
    return ok_status();
  };
  PF_ASSIGN(const int status, exchange(server, text, timeout_s, got, take));
  if (status != 200) return absl::FailedPreconditionError(refusal(status, got));
  out.end_s = seconds() - start;
  return out;
}

Result<std::string> fetch(const ServerUrl& server, std::string_view path,
                          std::string_view api_key) {
  std::string body;
  const std::string request = head_of(server, "GET", path, api_key, 0);
  PF_ASSIGN(const int status,
            exchange(server, request, 30, body, [](int) -> Status { return ok_status(); }));
  if (status != 200) return absl::FailedPreconditionError(refusal(status, body));
  return body;
}

}  // namespace pagefold::bench
