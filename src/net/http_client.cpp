// The one file that includes Beast and OpenSSL's sockets on the client side: they compile slowly.
#include "net/http_client.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <optional>
#include <vector>

namespace pagefold {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;
using beast::error_code;

constexpr std::chrono::seconds kTimeout{30};
constexpr int kMaxRedirects = 10;
constexpr size_t kMostFailure = 64 << 10;

// What is sent, and until when.
struct Request {
  http::verb verb = http::verb::get;
  std::string token, body;
  uint64_t range_from = 0;
  std::optional<std::chrono::steady_clock::time_point> until;

  void set_timer(beast::tcp_stream& stream) const {
    if (until) {
      stream.expires_at(*until);
    } else {
      stream.expires_after(kTimeout);
    }
  }
  Status network_error(const Url& url, std::string_view what, const error_code& ec) const {
    if (until && ec == beast::error::timeout) {
      return absl::DeadlineExceededError(
          fmt::format("{}: {}: not done in time", url.host_header(), what));
    }
    return io_error("{}: {}: {}", url.host_header(), what, ec.message());
  }
};

std::optional<std::chrono::steady_clock::time_point> deadline(double total_s) {
  if (total_s <= 0) return std::nullopt;
  return std::chrono::steady_clock::now() +
         std::chrono::milliseconds(static_cast<int64_t>(std::min(total_s, 1e6) * 1e3) + 1);
}

// Starts one asynchronous operation and runs it to its end: timeouts work, the code stays linear.
template <class Start>
error_code run_one(asio::io_context& io, Start start) {
  error_code result = asio::error::operation_aborted;
  start([&](const error_code& ec, auto&&...) { result = ec; });
  io.restart();
  io.run();
  return result;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

template <class Parser>
void copy_head(const Parser& parser, HttpReply& reply) {
  reply.status = static_cast<int>(parser.get().result_int());
  for (const auto& field : parser.get()) {
    const auto name = field.name_string();
    const auto value = field.value();
    reply.headers[lower({name.data(), name.size()})] = std::string(value.data(), value.size());
  }
}

bool is_redirect(const HttpReply& reply) {
  const int s = reply.status;
  return (s == 301 || s == 302 || s == 303 || s == 307 || s == 308) &&
         !reply.header("location").empty();
}

http::request<http::string_body> make_request(const Url& url, const Request& r, bool with_token) {
  http::request<http::string_body> request{r.verb, url.path, 11};
  request.set(http::field::host, url.host_header());
  request.set(http::field::user_agent, "pagefold");
  request.set(http::field::accept_encoding, "identity");
  request.set(http::field::connection, "close");
  if (r.range_from > 0) request.set(http::field::range, fmt::format("bytes={}-", r.range_from));
  if (with_token) request.set(http::field::authorization, "Bearer " + r.token);
  if (r.verb == http::verb::post) {
    request.set(http::field::content_type, "application/json");
    request.body() = r.body;
    request.prepare_payload();
  }
  return request;
}

// Request out, reply in. `lowest` is the TCP stream below `stream`: it has the timer.
template <class Stream>
Result<HttpReply> exchange(asio::io_context& io, Stream& stream, beast::tcp_stream& lowest,
                           const Url& url, const Request& r, bool with_token,
                           const HttpSink& sink) {
  auto request = make_request(url, r, with_token);
  r.set_timer(lowest);
  error_code ec = run_one(io, [&](auto done) { http::async_write(stream, request, done); });
  if (ec) return r.network_error(url, "sending the request", ec);

  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  parser.header_limit(64 << 10);
  r.set_timer(lowest);
  ec = run_one(io, [&](auto done) { http::async_read_header(stream, buffer, parser, done); });
  if (ec) return r.network_error(url, "reading the reply", ec);

  HttpReply reply;
  reply.final_url = url.text();
  copy_head(parser, reply);
  if (is_redirect(reply)) return reply;
  const bool failed = reply.status >= 400;
  if (sink.head && !failed) PF_TRY(sink.head(reply));

  std::vector<char> chunk(failed ? kMostFailure : 256 << 10);
  while (!parser.is_done()) {
    auto& body = parser.get().body();
    body.data = chunk.data();
    body.size = chunk.size();
    r.set_timer(lowest);
    // Some: a stream's pieces are handed on when they come, not when the buffer is full.
    ec = run_one(io, [&](auto done) { http::async_read_some(stream, buffer, parser, done); });
    if (ec == http::error::need_buffer) ec = {};
    const std::string_view piece(chunk.data(), chunk.size() - parser.get().body().size);
    if (failed) {
      reply.failure += piece;
      if (ec || reply.failure.size() >= kMostFailure) return reply;
    } else if (!piece.empty()) {
      PF_TRY(sink.body(piece));
    }
    if (ec) return r.network_error(url, "reading the body", ec);
  }
  return reply;
}

Result<HttpReply> one_hop(const Url& url, const Request& r, const HttpSink& sink, bool own = true) {
  const bool with_token = own && !r.token.empty();
  asio::io_context io;
  error_code ec;
  Tcp::resolver resolver(io);
  const auto addresses = resolver.resolve(url.host, url.port, ec);
  if (ec) return r.network_error(url, "looking the host up", ec);
  const auto connect = [&](beast::tcp_stream& stream) {
    r.set_timer(stream);
    return run_one(io, [&](auto done) { stream.async_connect(addresses, done); });
  };
  if (!url.https) {
    beast::tcp_stream stream(io);
    if (ec = connect(stream); ec) return r.network_error(url, "connecting", ec);
    return exchange(io, stream, stream, url, r, with_token, sink);
  }
  asio::ssl::context tls(asio::ssl::context::tls_client);
  tls.set_default_verify_paths(ec);
  if (ec) return r.network_error(url, "loading the system's certificates", ec);
  beast::ssl_stream<beast::tcp_stream> stream(io, tls);
  stream.set_verify_mode(asio::ssl::verify_peer, ec);
  stream.set_verify_callback(asio::ssl::host_name_verification(url.host), ec);
  if (!SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str())) {
    return io_error("{}: not a host name that TLS can name", url.host);
  }
  beast::tcp_stream& lowest = beast::get_lowest_layer(stream);
  if (ec = connect(lowest); ec) return r.network_error(url, "connecting", ec);
  r.set_timer(lowest);
  ec =
      run_one(io, [&](auto done) { stream.async_handshake(asio::ssl::stream_base::client, done); });
  if (ec) return r.network_error(url, "TLS", ec);
  return exchange(io, stream, lowest, url, r, with_token, sink);
}

Result<HttpReply> follow(const HttpGet& get, const HttpSink& sink) {
  PF_ASSIGN(const Url first, parse_url(get.url));
  Request r;
  r.token = get.token;
  r.range_from = get.range_from;
  r.until = deadline(get.total_s);
  Url url = first;
  std::map<std::string, std::string> linked;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    const bool own = url.same_origin(first);
    // The head is completed with what the first origin said about the linked file.
    HttpSink with_linked = sink;
    with_linked.head = [&](const HttpReply& reply) -> Status {
      if (!sink.head) return ok_status();
      HttpReply complete = reply;
      complete.headers.insert(linked.begin(), linked.end());
      return sink.head(complete);
    };
    PF_ASSIGN(HttpReply reply, one_hop(url, r, with_linked, own));
    if (own) {
      for (const auto& [name, value] : reply.headers) {
        if (name.starts_with("x-linked-")) linked[name] = value;
      }
    }
    if (!is_redirect(reply)) {
      reply.headers.insert(linked.begin(), linked.end());
      return reply;
    }
    PF_ASSIGN(const Url next, resolve_location(url, reply.header("location")));
    if (url.https && !next.https) {
      return bad_data("{}: redirects from https to http ({}), refused", url.host, next.host);
    }
    url = next;
  }
  return bad_data("{}: more than {} redirects", first.host, kMaxRedirects);
}

}  // namespace

Result<HttpReply> http_get(const HttpGet& get, const HttpSink& sink) {
  try {
    return follow(get, sink);
  } catch (const std::exception& e) {  // Beast and asio throw on allocation and set-up failures
    return io_error("{}: {}", get.url, e.what());
  }
}

Result<HttpReply> http_post(const HttpPost& post, const HttpSink& sink) {
  try {
    PF_ASSIGN(const Url url, parse_url(post.url));
    Request r;
    r.verb = http::verb::post;
    r.token = post.token;
    r.body = post.body;
    r.until = deadline(post.total_s);
    return one_hop(url, r, sink);
  } catch (const std::exception& e) {
    return io_error("{}: {}", post.url, e.what());
  }
}

Result<std::string> http_get_text(const HttpGet& get, size_t max_bytes, HttpReply& reply) {
  std::string text;
  HttpSink sink;
  sink.body = [&](std::string_view piece) -> Status {
    if (text.size() + piece.size() > max_bytes) {
      return bad_data("{}: the answer is longer than {} bytes", get.url, max_bytes);
    }
    text += piece;
    return ok_status();
  };
  PF_ASSIGN(reply, http_get(get, sink));
  return text;
}

}  // namespace pagefold
