#include "server/http_stream.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#ifdef PAGEFOLD_TLS
#include <boost/asio/ssl.hpp>
#endif

// As in http_connection.cpp: every co_await is its own statement.
namespace pagefold {
namespace {

using boost::system::error_code;
using net::ip::tcp;
constexpr auto as_transferred = net::as_tuple(net::use_awaitable);

}  // namespace

#ifdef PAGEFOLD_TLS
namespace ssl = net::ssl;

struct TlsContext::Impl {
  ssl::context context{ssl::context::tls_server};
};

struct HttpStream::Tls {
  Tls(tcp::socket& socket, ssl::context& context) : stream(socket, context) {}
  ssl::stream<tcp::socket&> stream;
};

Result<std::shared_ptr<TlsContext>> TlsContext::load(const std::string& certificate,
                                                     const std::string& key) {
  std::shared_ptr<TlsContext> out(new TlsContext);
  ssl::context& c = out->impl_->context;
  error_code ec;
  c.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                    ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1,
                ec);
  // A passphrase is never asked for on the terminal: a server that waits there serves nobody.
  c.set_password_callback([](size_t, ssl::context::password_purpose) { return std::string(); }, ec);
  c.use_certificate_chain_file(certificate, ec);
  if (ec) {
    return bad_input("--ssl-certfile: {}: no PEM certificate can be read from it ({})", certificate,
                     ec.message());
  }
  c.use_private_key_file(key, ssl::context::pem, ec);
  if (ec) {
    return bad_input(
        "--ssl-keyfile: {}: no PEM key without a passphrase that belongs to the certificate can be "
        "read from it ({})",
        key, ec.message());
  }
  if (SSL_CTX_check_private_key(c.native_handle()) != 1) {
    return bad_input("--ssl-keyfile: {}: the key does not belong to the certificate", key);
  }
  return out;
}

HttpStream::HttpStream(tcp::socket socket, TlsContext* tls) : socket_(std::move(socket)) {
  if (tls != nullptr) tls_ = std::make_unique<Tls>(socket_, tls->impl_->context);
}

net::awaitable<bool> HttpStream::handshake() {
  if (!tls_) co_return true;
  const auto [ec] = co_await tls_->stream.async_handshake(ssl::stream_base::server, as_transferred);
  co_return !ec;
}

net::awaitable<HttpStream::Transferred> HttpStream::read_some(net::mutable_buffer into) {
  if (tls_) {
    const Transferred result = co_await tls_->stream.async_read_some(into, as_transferred);
    co_return result;
  }
  const Transferred result = co_await socket_.async_read_some(into, as_transferred);
  co_return result;
}

net::awaitable<HttpStream::Transferred> HttpStream::write_some(net::const_buffer from) {
  if (tls_) {
    const Transferred result = co_await tls_->stream.async_write_some(from, as_transferred);
    co_return result;
  }
  const Transferred result = co_await socket_.async_write_some(from, as_transferred);
  co_return result;
}

net::awaitable<void> HttpStream::say_goodbye() {
  if (!tls_) co_return;
  co_await tls_->stream.async_shutdown(as_transferred);
}
#else
struct TlsContext::Impl {};
struct HttpStream::Tls {};

Result<std::shared_ptr<TlsContext>> TlsContext::load(const std::string&, const std::string&) {
  return bad_input(
      "--ssl-certfile: this program was built without OpenSSL; build it with libssl-dev installed, "
      "or put a proxy in front");
}

HttpStream::HttpStream(tcp::socket socket, TlsContext*) : socket_(std::move(socket)) {}

net::awaitable<bool> HttpStream::handshake() { co_return true; }

net::awaitable<HttpStream::Transferred> HttpStream::read_some(net::mutable_buffer into) {
  const Transferred result = co_await socket_.async_read_some(into, as_transferred);
  co_return result;
}

net::awaitable<HttpStream::Transferred> HttpStream::write_some(net::const_buffer from) {
  const Transferred result = co_await socket_.async_write_some(from, as_transferred);
  co_return result;
}

net::awaitable<void> HttpStream::say_goodbye() { co_return; }
#endif

TlsContext::TlsContext() : impl_(std::make_unique<Impl>()) {}
TlsContext::~TlsContext() = default;
HttpStream::~HttpStream() = default;

}  // namespace pagefold
