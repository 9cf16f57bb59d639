#include "server/http_connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/http_parser.h"
#include "server/http_stream.h"
#include "server/request_ids.h"
#include "server/request_log.h"

// g++ 12 miscompiles some coroutines whose co_await sits inside a condition or another expression
// (seen: a trap in place of the resume path), so here every co_await is its own statement.
namespace pagefold {
namespace {

using boost::system::error_code;
using net::ip::tcp;
using namespace net::experimental::awaitable_operators;
constexpr auto as_result = net::as_tuple(net::use_awaitable);

constexpr size_t kMaxPipelined = 64 << 10;  // bytes read ahead while an answer is being made
constexpr size_t kReadSize = 4096, kBodyReadSize = 64 << 10;
constexpr std::chrono::seconds kLinger{2};

void set_option(int fd, int level, int name, int value) {
  // Best effort: a kernel without the option only notices vanished peers later.
  static_cast<void>(setsockopt(fd, level, name, &value, sizeof value));
}

}  // namespace

struct HttpConnection::Impl {
  Impl(HttpContext& c, tcp::socket s, Strand st)
      : context(c), io(c.io), strand(std::move(st)), stream(std::move(s), c.tls.get()) {}

  HttpContext& context;
  IoContext io;
  Strand strand;
  HttpStream stream;
  std::weak_ptr<Exchange> current;   // the answer under way
  std::string in;                    // came and is not used yet
  std::atomic<int64_t> deadline{0};  // steady milliseconds; 0: none
  std::atomic<bool> idle{true};      // waits for the first byte of a request

  void expect_within(std::chrono::milliseconds time) { deadline = now_ms() + time.count(); }
  void expect_nothing() { deadline = 0; }
  void close() {
    error_code ignored;
    stream.socket().close(ignored);
  }
  void set_socket_options();
  net::awaitable<bool> handshake();
  net::awaitable<bool> read_more(size_t most);
  net::awaitable<bool> first_byte();
  net::awaitable<bool> one_request();
  net::awaitable<bool> read_request(HttpParser& parser);
  net::awaitable<bool> answer(HttpRequest request, Exchange::Wire wire);
  net::awaitable<bool> produce(std::shared_ptr<Exchange> exchange);
  net::awaitable<void> watch();
  net::awaitable<bool> write_all(std::string bytes, Exchange* exchange);
  net::awaitable<void> reject(int status, std::string message);
  net::awaitable<void> linger();
  net::awaitable<void> finish();
};

void HttpConnection::Impl::set_socket_options() {
  error_code ignored;
  tcp::socket& socket = stream.socket();
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

net::awaitable<bool> HttpConnection::Impl::handshake() {
  expect_within(context.options.request_timeout);
  const bool ok = co_await stream.handshake();
  co_return ok;
}

// Appends to `in`; false: the client has left.
net::awaitable<bool> HttpConnection::Impl::read_more(size_t most) {
  const size_t before = in.size();
  in.resize(before + most);
  const auto [ec, n] = co_await stream.read_some(net::buffer(in.data() + before, most));
  in.resize(before + (ec ? 0 : n));
  co_return !ec;
}

net::awaitable<bool> HttpConnection::Impl::first_byte() {
  if (!in.empty()) co_return true;  // pipelined
  idle = true;
  // While the server drains, whoever asks here still gets an answer: 503.
  expect_within(context.options.idle_timeout);
  const bool ok = co_await read_more(kReadSize);
  idle = false;
  co_return ok;
}

// One whole request; false: it was refused, or the client has left.
net::awaitable<bool> HttpConnection::Impl::read_request(HttpParser& parser) {
  bool continued = false;
  for (;;) {
    in.erase(0, parser.feed(in));
    if (parser.failed()) {
      co_await reject(parser.fault().status, std::string(parser.fault().message));
      co_return false;
    }
    if (parser.done()) co_return true;
    if (!in.empty()) continue;  // the head ends here, its body follows
    if (parser.head_done() && parser.expects_continue() && !continued) {
      continued = true;
      const bool sent = co_await write_all(std::string("HTTP/1.1 100 Continue\r\n\r\n"), nullptr);
      if (!sent) co_return false;
      expect_within(context.options.request_timeout);
    }
    const bool more = co_await read_more(parser.head_done() ? kBodyReadSize : kReadSize);
    if (!more) co_return false;
  }
}

// One request and its answer; false ends the connection.
net::awaitable<bool> HttpConnection::Impl::one_request() {
  bool ok = co_await first_byte();
  if (!ok) co_return false;
  expect_within(context.options.request_timeout);
  auto parser = std::make_unique<HttpParser>(
      HttpParser::Limits{.max_header_bytes = context.options.max_header_bytes,
                         .max_body_bytes = context.options.max_body_bytes});
  ok = co_await read_request(*parser);
  if (!ok) co_return false;
  expect_nothing();
  HttpRequest request = std::move(parser->request());
  const std::string_view id = request.header("X-Request-Id");
  request.id = usable_request_id(id) ? std::string(id) : new_id("");
  Exchange::Wire wire{.http10 = parser->http10(),
                      .keep_alive = parser->keep_alive() && !context.stopping,
                      .head = request.method == "HEAD",
                      .headers = {{"X-Request-Id", request.id}}};
  const std::string_view trace = request.header("traceparent");
  if (valid_traceparent(trace)) wire.headers.emplace_back("traceparent", trace);
  parser.reset();
  ok = co_await answer(std::move(request), std::move(wire));
  co_return ok;
}

net::awaitable<bool> HttpConnection::Impl::answer(HttpRequest request, Exchange::Wire wire) {
  const RequestLog line(request, wire.headers);
  auto exchange =
      std::make_shared<Exchange>(io, strand, std::move(wire), context.options.max_queued_bytes);
  current = exchange;
  if (context.stopping) {
    exchange->send(503, {{"Content-Type", "application/json"}, {"Retry-After", "1"}},
                   context.handler.error_body(503, "The server is stopping."));
  } else {
    context.handler.handle(std::move(request), exchange);
  }
  const auto outcome = co_await (produce(exchange) || watch());
  const bool complete = outcome.index() == 0 && std::get<0>(outcome);
  if (!complete) exchange->client_left();
  line.write(exchange->status(), exchange->body_bytes(), complete);
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

// Reads ahead, so that pipelined bytes are kept; returns when the client has left.
net::awaitable<void> HttpConnection::Impl::watch() {
  while (in.size() < kMaxPipelined) {
    const bool more = co_await read_more(kReadSize);
    if (!more) co_return;
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
    const auto [ec, n] =
        co_await stream.write_some(net::buffer(bytes.data() + done, bytes.size() - done));
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
  tcp::socket& socket = stream.socket();
  socket.shutdown(tcp::socket::shutdown_send, ec);
  expect_within(kLinger);
  std::array<char, 4096> rest;
  while (!ec) {
    const auto result = co_await socket.async_read_some(net::buffer(rest), as_result);
    ec = std::get<0>(result);
  }
}

net::awaitable<void> HttpConnection::Impl::finish() {
  expect_within(kLinger);
  co_await stream.say_goodbye();
  error_code ignored;
  stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
  close();
}

HttpConnection::HttpConnection(HttpContext& context, tcp::socket socket, Strand strand)
    : impl_(std::make_unique<Impl>(context, std::move(socket), std::move(strand))) {}
HttpConnection::~HttpConnection() = default;

net::awaitable<void> HttpConnection::serve(std::shared_ptr<HttpConnection> self) {
  Impl& c = *self->impl_;
  c.set_socket_options();
  bool more = co_await c.handshake();
  while (more) more = co_await c.one_request();
  co_await c.finish();
}

net::awaitable<void> HttpConnection::refuse(std::shared_ptr<HttpConnection> self) {
  Impl& c = *self->impl_;
  const bool ok = co_await c.handshake();
  if (ok) co_await c.reject(503, "Too many connections are open; try again later.");
  c.close();
}

void HttpConnection::give_up(std::shared_ptr<HttpConnection> self) {
  Impl& c = *self->impl_;
  net::post(c.strand, [self = std::move(self)] {
    if (const auto exchange = self->impl_->current.lock()) exchange->give_up();
  });
}

void HttpConnection::stop(std::shared_ptr<HttpConnection> self) {
  Impl& c = *self->impl_;
  net::post(c.strand, [self = std::move(self)] { self->impl_->close(); });
}

bool HttpConnection::idle() const { return impl_->idle; }

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
