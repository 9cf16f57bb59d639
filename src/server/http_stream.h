// The bytes of one connection: a socket, with TLS on it or without. Internal to http_*.cpp;
// includes Asio.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>
#include <tuple>

#include "base/result.h"
#include "server/http_exchange.h"

namespace pagefold {

// The server's certificate and key, read once.
class TlsContext {
 public:
  // Paths of PEM files. kFailedPrecondition: built without OpenSSL; else what is wrong with which.
  static Result<std::shared_ptr<TlsContext>> load(const std::string& certificate,
                                                  const std::string& key);
  ~TlsContext();

 private:
  friend class HttpStream;
  struct Impl;
  std::unique_ptr<Impl> impl_;
  TlsContext();
};

// All methods run on the connection's strand. One read and one write may be under way at a time.
class HttpStream {
 public:
  using Transferred = std::tuple<boost::system::error_code, size_t>;

  // tls: nullptr for plain HTTP; outlives the stream.
  HttpStream(net::ip::tcp::socket socket, TlsContext* tls);
  ~HttpStream();

  // Does nothing without TLS; false: the client speaks no TLS that we accept.
  net::awaitable<bool> handshake();
  net::awaitable<Transferred> read_some(net::mutable_buffer into);
  net::awaitable<Transferred> write_some(net::const_buffer from);
  // Tells a TLS client that the answer is whole. Best effort.
  net::awaitable<void> say_goodbye();

  net::ip::tcp::socket& socket() { return socket_; }

 private:
  struct Tls;
  net::ip::tcp::socket socket_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace pagefold
