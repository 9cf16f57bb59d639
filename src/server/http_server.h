// The HTTP/1.1 server: event-driven, one coroutine a connection, so that any number of open streams
// costs no thread. Knows nothing of what is served (http.h).
//
// A client that closes its side of the connection has left: EOF while an answer is being made
// counts as a disconnect (a half-closed client cannot be told from a gone one).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http.h"

namespace pagefold {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: the system chooses
  int io_threads = 1;
  // One more gets 503 and is closed.
  int max_connections = 1024;
  size_t max_body_bytes = 4 << 20;
  size_t max_header_bytes = 64 << 10;
  // Output waiting for a slow reader, before its producer is told to wait.
  size_t max_queued_bytes = 1 << 20;
  // A request must arrive whole within this time of its first byte ...
  std::chrono::seconds request_timeout{60};
  // ... and a connection may be idle between requests for this long.
  std::chrono::seconds idle_timeout{120};
  // Output that the peer does not take (or acknowledge) for this long ends the connection.
  std::chrono::seconds peer_timeout{30};
  // PEM files; both or none. With them the server speaks TLS only.
  std::string tls_certificate, tls_key;
  // SIGINT, SIGTERM, and SIGHUP unless it is ignored, stop gracefully; the second one ends the
  // process at once.
  bool handle_signals = false;
  // Time that running answers get after stop().
  std::chrono::seconds grace{30};
};

// Whether `options` names an address that can be listened on now: to be asked before work that a
// wrong one would waste. kInvalidArgument: no IP address.
Status check_listen_address(const HttpServerOptions& options);

class HttpServer {
 public:
  // Binds and listens; nothing is accepted before run(). The handler must outlive the server.
  static Result<std::unique_ptr<HttpServer>> bind(const HttpServerOptions& options,
                                                  HttpHandler& handler);
  ~HttpServer();  // stops without grace and waits

  const std::string& host() const;
  uint16_t port() const;
  // Serves until stop() has been called and the running answers are done, or their grace is over.
  void run();
  // Thread-safe. Stops accepting; requests on open connections get 503 until the running answers
  // are done.
  void stop();
  // Connections that are open now.
  int connections() const;

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace pagefold
