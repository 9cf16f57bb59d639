#include "server/http_server.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "base/log.h"
#include "server/http_connection.h"

namespace pagefold {
namespace {

using boost::system::error_code;
using net::ip::tcp;
constexpr auto as_pair = net::as_tuple(net::use_awaitable);
constexpr std::chrono::milliseconds kLastWords{500};  // to say that an answer ends early
constexpr int kMaxRefusing = 64;  // connections that are being told 503; beyond it they are closed

Result<std::shared_ptr<TlsContext>> load_tls(const HttpServerOptions& o) {
  if (o.tls_certificate.empty() || o.tls_key.empty()) {
    return bad_input("--ssl-certfile and --ssl-keyfile go together; one of them is missing");
  }
  return TlsContext::load(o.tls_certificate, o.tls_key);
}

Status listen_on(const HttpServerOptions& options, tcp::acceptor& acceptor) {
  error_code ec;
  const auto address =
      net::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, ec);
  if (ec)
    return bad_input("--host: '{}' is not an IP address (use 127.0.0.1, 0.0.0.0 or ::)",
                     options.host);
  const tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(net::socket_base::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(net::socket_base::max_listen_connections, ec);
  if (ec) {
    return io_error("cannot listen on {}:{}: {} (choose another --port; 0 picks a free one)",
                    options.host, options.port, ec.message());
  }
  return ok_status();
}

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  using ConnectionPtr = std::shared_ptr<HttpConnection>;

  Impl(const HttpServerOptions& o, HttpHandler& h)
      : context{.options = o, .handler = h, .io = std::make_shared<net::io_context>(o.io_threads)},
        control(net::make_strand(*context.io)),
        acceptor(control),
        ticker(control),
        signals(control) {}

  Status listen();
  void start();
  net::awaitable<void> accept_loop();
  net::awaitable<void> tick_loop();
  net::awaitable<void> signal_loop();
  void admit(tcp::socket socket, Strand strand);
  void left(const ConnectionPtr& c, bool refused);
  void begin_stop(std::chrono::milliseconds grace);
  size_t open_connections();
  bool busy();
  void end_answers();
  void close_all();
  void close_expired();
  void work();

  HttpContext context;
  Strand control;
  tcp::acceptor acceptor;
  net::steady_timer ticker;
  net::signal_set signals;
  uint16_t port = 0;
  int64_t stop_deadline_ms = 0;  // on control
  bool gave_up = false;          // on control: answers were told to end

  std::mutex mutex;  // guards what follows
  std::unordered_set<ConnectionPtr> connections;
  int serving = 0, refusing = 0;
  bool running = false;
  std::condition_variable stopped;
};

Status check_listen_address(const HttpServerOptions& options) {
  if (!options.tls_certificate.empty() || !options.tls_key.empty()) {
    PF_TRY(load_tls(options).status());
  }
  net::io_context io;
  tcp::acceptor acceptor(io);
  return listen_on(options, acceptor);
}

Status HttpServer::Impl::listen() {
  const HttpServerOptions& o = context.options;
  if (!o.tls_certificate.empty() || !o.tls_key.empty()) {
    PF_ASSIGN(context.tls, load_tls(o));
  }
  PF_TRY(listen_on(o, acceptor));
  error_code ec;
  port = acceptor.local_endpoint(ec).port();
  return ok_status();
}

void HttpServer::Impl::start() {
  auto self = shared_from_this();
  const auto spawn = [&](net::awaitable<void> task) {
    net::co_spawn(control, std::move(task), [self](std::exception_ptr) {});
  };
  spawn(accept_loop());
  spawn(tick_loop());
  if (context.options.handle_signals) {
    signals.add(SIGINT);
    signals.add(SIGTERM);
    // Under nohup it is ignored, and the server outlives its terminal.
    struct sigaction hangup {};
    if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_DFL) {
      signals.add(SIGHUP);
    }
    spawn(signal_loop());
  }
}

net::awaitable<void> HttpServer::Impl::accept_loop() {
  while (!context.stopping) {
    Strand strand = net::make_strand(*context.io);
    auto [ec, socket] = co_await acceptor.async_accept(strand, as_pair);
    if (!ec) {
      admit(std::move(socket), std::move(strand));
    } else if (!context.stopping) {
      // Out of descriptors, or a client that left before it was accepted: neither ends the server.
      net::steady_timer pause(control, std::chrono::milliseconds(50));
      co_await pause.async_wait(as_pair);
    }
  }
}

void HttpServer::Impl::admit(tcp::socket socket, Strand strand) {
  bool refused;
  auto c = std::make_shared<HttpConnection>(context, std::move(socket), strand);
  {
    std::lock_guard lock(mutex);
    refused = serving >= context.options.max_connections;
    if (refused && refusing >= kMaxRefusing) return;  // closes it
    ++(refused ? refusing : serving);
    connections.insert(c);
  }
  net::co_spawn(strand, refused ? HttpConnection::refuse(c) : HttpConnection::serve(c),
                [self = shared_from_this(), c, refused](std::exception_ptr e) {
                  if (e) log::error("a connection ended with an exception");
                  self->left(c, refused);
                });
}

void HttpServer::Impl::left(const ConnectionPtr& c, bool refused) {
  {
    std::lock_guard lock(mutex);
    connections.erase(c);
    --(refused ? refusing : serving);
  }
  if (context.stopping) {
    net::post(control, [self = shared_from_this()] { self->ticker.cancel(); });
  }
}

// Once a second: closes what is over its time; ends the server when it is to stop and all have
// left.
net::awaitable<void> HttpServer::Impl::tick_loop() {
  for (;;) {
    if (context.stopping) {
      if (std::lock_guard lock(mutex); connections.empty()) break;
      if (!busy()) {
        close_all();
      } else if (HttpConnection::now_ms() >= stop_deadline_ms) {
        end_answers();
      }
    }
    close_expired();
    auto next = std::chrono::milliseconds(1000);
    if (context.stopping) {
      next = std::min(next, std::chrono::milliseconds(std::max<int64_t>(
                                10, stop_deadline_ms - HttpConnection::now_ms())));
    }
    ticker.expires_after(next);
    co_await ticker.async_wait(as_pair);
  }
  error_code ignored;
  signals.cancel(ignored);
}

net::awaitable<void> HttpServer::Impl::signal_loop() {
  auto [ec, number] = co_await signals.async_wait(as_pair);
  if (ec) co_return;
  log::info(
      "stopping: {} open connections; running answers have {} s; a second signal ends at once",
      open_connections(), context.options.grace.count());
  begin_stop(context.options.grace);
  std::tie(ec, number) = co_await signals.async_wait(as_pair);
  if (!ec) std::_Exit(128 + number);
}

void HttpServer::Impl::begin_stop(std::chrono::milliseconds grace) {
  const int64_t deadline = HttpConnection::now_ms() + grace.count();
  stop_deadline_ms = context.stopping ? std::min(stop_deadline_ms, deadline) : deadline;
  context.stopping = true;
  error_code ignored;
  acceptor.close(ignored);
  ticker.cancel();
}

size_t HttpServer::Impl::open_connections() {
  std::lock_guard lock(mutex);
  return connections.size();
}

bool HttpServer::Impl::busy() {
  std::lock_guard lock(mutex);
  return std::any_of(connections.begin(), connections.end(),
                     [](const ConnectionPtr& c) { return !c->idle(); });
}

// At the deadline answers are told to end; what a moment later still is not gone is closed.
void HttpServer::Impl::end_answers() {
  if (std::exchange(gave_up, true)) return close_all();
  stop_deadline_ms = HttpConnection::now_ms() + kLastWords.count();
  std::lock_guard lock(mutex);
  for (const auto& c : connections) HttpConnection::give_up(c);
}

void HttpServer::Impl::close_all() {
  std::lock_guard lock(mutex);
  for (const auto& c : connections) HttpConnection::stop(c);
}

void HttpServer::Impl::close_expired() {
  const int64_t now = HttpConnection::now_ms();
  std::lock_guard lock(mutex);
  for (const auto& c : connections) {
    if (c->expired(now)) HttpConnection::stop(c);
  }
}

void HttpServer::Impl::work() {
  for (;;) {
    try {
      context.io->run();
      return;
    } catch (const std::exception& e) {  // out of memory in a callback: that answer is lost
      log::error("exception in the HTTP server: {}", e.what());
    }
  }
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::bind(const HttpServerOptions& options,
                                                     HttpHandler& handler) {
  auto impl = std::make_shared<Impl>(options, handler);
  PF_TRY(impl->listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() {
  net::post(impl_->control, [impl = impl_] { impl->begin_stop(std::chrono::milliseconds(0)); });
  std::unique_lock lock(impl_->mutex);
  impl_->stopped.wait(lock, [&] { return !impl_->running; });
  lock.unlock();
  // Never run: the posted stop must not stay in the context, which it would keep alive.
  impl_->work();
}

const std::string& HttpServer::host() const { return impl_->context.options.host; }
uint16_t HttpServer::port() const { return impl_->port; }

int HttpServer::connections() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->serving;
}

void HttpServer::run() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->running = true;
  }
  impl_->start();
  std::vector<std::thread> helpers;
  for (int i = 1; i < impl_->context.options.io_threads; ++i) {
    helpers.emplace_back([impl = impl_] { impl->work(); });
  }
  impl_->work();
  for (auto& t : helpers) t.join();
  std::lock_guard lock(impl_->mutex);
  impl_->running = false;
  impl_->stopped.notify_all();
}

void HttpServer::stop() {
  net::post(impl_->control, [impl = impl_] { impl->begin_stop(impl->context.options.grace); });
}

}  // namespace pagefold
