// One connection: reads requests, has them answered, writes. Internal to http_*.cpp; includes Asio.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "server/http_exchange.h"
#include "server/http_server.h"
#include "server/http_stream.h"

namespace pagefold {

// What all connections of a server share.
struct HttpContext {
  HttpServerOptions options;
  HttpHandler& handler;
  IoContext io;
  std::shared_ptr<TlsContext> tls = nullptr;  // nullptr: plain HTTP
  std::atomic<bool> stopping{false};
};

class HttpConnection {
 public:
  HttpConnection(HttpContext& context, net::ip::tcp::socket socket, Strand strand);
  ~HttpConnection();

  // Serves until the connection ends. `self` keeps it alive.
  static net::awaitable<void> serve(std::shared_ptr<HttpConnection> self);
  // Answers 503 and closes.
  static net::awaitable<void> refuse(std::shared_ptr<HttpConnection> self);

  // Thread-safe: has its answer end with what can still be said.
  static void give_up(std::shared_ptr<HttpConnection> self);
  // Thread-safe: closes it.
  static void stop(std::shared_ptr<HttpConnection> self);
  // Thread-safe: it waits for a request.
  bool idle() const;
  // Thread-safe: its deadline has passed.
  bool expired(int64_t now_ms) const;
  static int64_t now_ms();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefold
