// The line between HTTP and what the server says: no socket, no Boost, so that handlers are tested
// with plain objects.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pagefold {

struct HttpRequest {
  std::string method;  // upper case, as sent
  std::string target;  // path and query, as sent
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // The client's X-Request-Id where it is usable, else a new one. The server puts it on the answer.
  std::string id;

  std::string_view path() const;  // target up to '?'
  // First value of a header, "" if absent; the name's case does not matter.
  std::string_view header(std::string_view name) const;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// Where one answer goes. Either send(), or begin_stream(), write()..., end(). All methods but
// post() belong to the connection's executor: the handler is called there, other threads get there
// by post(). After the client has left everything is accepted and dropped.
class Responder {
 public:
  virtual ~Responder() = default;

  // Goes with the answer, whoever gives it; before it begins.
  virtual void add_header(std::string_view name, std::string_view value) = 0;
  virtual void send(int status, HttpHeaders headers, std::string body) = 0;
  virtual void begin_stream(int status, HttpHeaders headers) = 0;
  virtual void write(std::string_view chunk) = 0;
  virtual void end() = 0;

  // Bytes handed over and not yet taken by the socket. A producer stops at max_queued_bytes() and
  // goes on when on_writable calls.
  virtual size_t queued_bytes() const = 0;
  virtual size_t max_queued_bytes() const = 0;
  virtual void on_writable(std::function<void()> callback) = 0;
  // The client has left (EOF counts as leaving), or the server closes. Called at most once, never
  // after the answer is complete.
  virtual void on_closed(std::function<void()> callback) = 0;
  // The server stops and waits no longer: what is said now may still reach the client. Called at
  // most once, never after the answer is complete.
  virtual void on_stopping(std::function<void()> callback) { static_cast<void>(callback); }

  // Runs work on the connection's executor. Thread-safe.
  virtual void post(std::function<void()> work) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Must answer through the responder, now or later, and must not block.
  virtual void handle(HttpRequest request, std::shared_ptr<Responder> responder) = 0;
  // The answer for a message that is not acceptable HTTP, or that comes while the server is full or
  // stopping: a body of type application/json. Called once for each such answer.
  virtual std::string error_body(int status, std::string_view message) const = 0;
};

// "OK", "Bad Request" ...
std::string_view http_reason(int status);

// What a head needs besides its headers.
struct HttpFraming {
  bool keep_alive = true;
  bool chunked = false;   // a stream on HTTP/1.1; false on a stream: the close ends it
  long long length = -1;  // Content-Length; -1: not sent
  bool http10 = false;
};
// Status line and headers with the blank line. CR and LF in values are dropped.
std::string http_head(int status, const HttpHeaders& headers, const HttpFraming& framing);
// One chunk of a chunked body. Empty data gives nothing (an empty chunk would end the body).
void append_http_chunk(std::string& out, std::string_view data);

bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace pagefold
