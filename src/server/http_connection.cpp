#include "server/http_connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

#include "base/log.h"

// g++ 12 miscompiles some coroutines whose co_await sits inside a condition or another expression
// (seen: a trap in place of the resume path), so here every co_await is its own statement.
namespace pagefold {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;
using net::ip::tcp;
using namespace net::experimental::awaitable_operators;
using Parser = http::request_parser<http::string_body>;
constexpr auto as_result = net::as_tuple(net::use_awaitable);

constexpr size_t kMaxPipelined = 64 << 10;  // bytes read ahead while an answer is being made
constexpr std::chrono::seconds kLinger{2};

void set_option(int fd, int level, int name, int value) {
  // Best effort: a kernel without the option only notices vanished peers later.
  static_cast<void>(setsockopt(fd, level, name, &value, sizeof value));
}

// The HTTP status for a message that cannot be read; nullopt: nobody is left to tell.
std::optional<int> status_of(error_code ec) {
  if (ec == http::error::header_limit) return 431;
  if (ec == http::error::body_limit) return 413;
  if (ec == http::error::end_of_stream || ec == http::error::partial_message) return std::nullopt;
  static const auto& parse_errors = http::make_error_code(http::error::bad_method).category();
  if (ec.category() == parse_errors) return 400;
  return std::nullopt;
}

std::string_view reason_of(int status) {
  switch (status) {
    case 413:
      return "The request body is larger than this server accepts.";
    case 431:
      return "The request headers are larger than this server accepts.";
    default:
      return "The message is not valid HTTP/1.1.";
  }
}

}  // namespace

struct HttpConnection::Impl {
  Impl(HttpContext& c, tcp::socket s, Strand st)
      : context(c),
        io(c.io),
        strand(std::move(st)),
        socket(std::move(s)),
        buffer(c.options.max_header_bytes + kMaxPipelined) {}

  HttpContext& context;
  IoContext io;
  Strand strand;
  tcp::socket socket;
  boost::beast::flat_buffer buffer;
  std::atomic<int64_t> deadline{0};  // steady milliseconds; 0: none
  bool idle = true;                  // waits for the first byte of a request

  void expect_within(std::chrono::milliseconds time) { deadline = now_ms() + time.count(); }
  void expect_nothing() { deadline = 0; }
  void close() {
    error_code ignored;
    socket.close(ignored);
  }
  void set_socket_options();
  net::awaitable<bool> first_byte();
  net::awaitable<bool> one_request();
  net::awaitable<bool> read_body(Parser& parser);
  net::awaitable<bool> answer(HttpRequest request, Exchange::Wire wire);
  net::awaitable<bool> produce(std::shared_ptr<Exchange> exchange);
  net::awaitable<void> watch();
  net::awaitable<bool> write_all(std::string bytes, Exchange* exchange);
  net::awaitable<void> reject(int status, std::string message);
  net::awaitable<void> linger();
};

void HttpConnection::Impl::set_socket_options() {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(net::socket_base::keep_alive(true), ignored);
  const int fd = socket.native_handle();
  const int seconds = static_cast<int>(context.options.peer_timeout.count());
  // A peer that vanished without a FIN: probes while nothing is sent, unacknowledged data
  // otherwise.
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 6));
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
}

net::awaitable<bool> HttpConnection::Impl::first_byte() {
  if (buffer.size() > 0) co_return true;  // pipelined
  if (context.stopping) co_return false;
  idle = true;
  expect_within(context.options.idle_timeout);
  const auto [ec, n] = co_await socket.async_read_some(buffer.prepare(4096), as_result);
  idle = false;
  if (ec) co_return false;
  buffer.commit(n);
  co_return true;
}

net::awaitable<bool> HttpConnection::Impl::read_body(Parser& parser) {
  if (parser.is_done()) co_return true;
  if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    const bool ok = co_await write_all(std::string("HTTP/1.1 100 Continue\r\n\r\n"), nullptr);
    if (!ok) co_return false;
    expect_within(context.options.request_timeout);
  }
  const auto [ec, n] = co_await http::async_read(socket, buffer, parser, as_result);
  if (!ec) co_return true;
  if (const auto status = status_of(ec)) {
    co_await reject(*status, std::string(reason_of(*status)));
  }
  co_return false;
}

// One request and its answer; false ends the connection.
net::awaitable<bool> HttpConnection::Impl::one_request() {
  bool ok = co_await first_byte();
  if (!ok) co_return false;
  expect_within(context.options.request_timeout);
  auto parser = std::make_unique<Parser>();
  parser->header_limit(static_cast<uint32_t>(context.options.max_header_bytes));
  parser->body_limit(context.options.max_body_bytes);
  const auto [ec, n] = co_await http::async_read_header(socket, buffer, *parser, as_result);
  if (ec) {
    if (const auto status = status_of(ec)) {
      co_await reject(*status, std::string(reason_of(*status)));
    }
    co_return false;
  }
  ok = co_await read_body(*parser);
  if (!ok) co_return false;
  expect_nothing();

  auto& message = parser->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  request.body = std::move(message.body());
  const Exchange::Wire wire{.http10 = message.version() < 11,
                            .keep_alive = message.keep_alive() && !context.stopping,
                            .head = request.method == "HEAD"};
  parser.reset();
  ok = co_await answer(std::move(request), wire);
  co_return ok;
}

net::awaitable<bool> HttpConnection::Impl::answer(HttpRequest request, Exchange::Wire wire) {
  auto exchange = std::make_shared<Exchange>(io, strand, wire, context.options.max_queued_bytes);
  if (context.stopping) {
    exchange->send(503, {{"Content-Type", "application/json"}},
                   context.handler.error_body(503, "The server is stopping."));
  } else {
    context.handler.handle(std::move(request), exchange);
  }
  const auto outcome = co_await (produce(exchange) || watch());
  const bool complete = outcome.index() == 0 && std::get<0>(outcome);
  if (!complete) exchange->client_left();
  co_return complete && exchange->keep_alive() && !context.stopping;
}

// Writes what the handler gives until the answer is complete; false: the peer takes no more.
net::awaitable<bool> HttpConnection::Impl::produce(std::shared_ptr<Exchange> exchange) {
  bool ok = true;
  while (ok && !(exchange->ended() && !exchange->has_output())) {
    if (exchange->has_output()) {
      ok = co_await write_all(exchange->take_output(), exchange.get());
    } else {
      exchange->wake_timer().expires_at(net::steady_timer::time_point::max());
      co_await exchange->wake_timer().async_wait(as_result);
    }
  }
  co_return ok;
}

// Reads ahead into the buffer, so that pipelined bytes are kept; returns when the client has left.
net::awaitable<void> HttpConnection::Impl::watch() {
  while (buffer.size() < kMaxPipelined) {
    const auto [ec, n] = co_await socket.async_read_some(buffer.prepare(4096), as_result);
    if (ec) co_return;
    buffer.commit(n);
  }
  // Enough read ahead: from here on only a failing write shows that the client has left.
  net::steady_timer never(strand, net::steady_timer::time_point::max());
  co_await never.async_wait(as_result);
}

// In pieces, so that a slow reader gets the timeout anew for every piece it takes.
net::awaitable<bool> HttpConnection::Impl::write_all(std::string bytes, Exchange* exchange) {
  size_t done = 0;
  while (done < bytes.size()) {
    expect_within(context.options.peer_timeout);
    const auto [ec, n] = co_await socket.async_write_some(
        net::buffer(bytes.data() + done, bytes.size() - done), as_result);
    if (ec) co_return false;
    done += n;
    if (exchange) exchange->written(n);
  }
  expect_nothing();
  co_return true;
}

net::awaitable<void> HttpConnection::Impl::reject(int status, std::string message) {
  std::string body = context.handler.error_body(status, message);
  std::string text =
      http_head(status, {{"Content-Type", "application/json"}},
                {.keep_alive = false, .length = static_cast<long long>(body.size())});
  text += body;
  const bool ok = co_await write_all(std::move(text), nullptr);
  if (ok) co_await linger();
}

// Closing with unread bytes would send a reset that can overtake the answer: read on for a moment.
net::awaitable<void> HttpConnection::Impl::linger() {
  error_code ec;
  socket.shutdown(tcp::socket::shutdown_send, ec);
  expect_within(kLinger);
  std::array<char, 4096> rest;
  while (!ec) {
    const auto result = co_await socket.async_read_some(net::buffer(rest), as_result);
    ec = std::get<0>(result);
  }
}

HttpConnection::HttpConnection(HttpContext& context, tcp::socket socket, Strand strand)
    : impl_(std::make_unique<Impl>(context, std::move(socket), std::move(strand))) {}
HttpConnection::~HttpConnection() = default;

net::awaitable<void> HttpConnection::serve(std::shared_ptr<HttpConnection> self) {
  Impl& c = *self->impl_;
  c.set_socket_options();
  bool more = true;
  while (more) more = co_await c.one_request();
  error_code ignored;
  c.socket.shutdown(tcp::socket::shutdown_both, ignored);
  c.close();
}

net::awaitable<void> HttpConnection::refuse(std::shared_ptr<HttpConnection> self) {
  Impl& c = *self->impl_;
  co_await c.reject(503, "Too many connections are open; try again later.");
  c.close();
}

void HttpConnection::stop(std::shared_ptr<HttpConnection> self, bool force) {
  Impl& c = *self->impl_;
  net::post(c.strand, [self = std::move(self), force] {
    if (force || self->impl_->idle) self->impl_->close();
  });
}

bool HttpConnection::expired(int64_t now) const {
  const int64_t deadline = impl_->deadline;
  return deadline != 0 && now > deadline;
}

int64_t HttpConnection::now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace pagefold
