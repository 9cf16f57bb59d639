// One request's answer on one connection: the Responder the handler sees, and the queue the
// connection writes from. Internal to http_*.cpp; includes Asio.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/http.h"

namespace pagefold {

namespace net = boost::asio;
using IoContext = std::shared_ptr<net::io_context>;
using Strand = net::strand<net::io_context::executor_type>;

// All methods but post() run on the connection's strand.
class Exchange final : public Responder {
 public:
  // How the answer is framed; known from the request.
  struct Wire {
    bool http10 = false, keep_alive = true, head = false;
    HttpHeaders headers = {};  // added to those of the handler
  };
  Exchange(IoContext io, Strand strand, Wire wire, size_t max_queued)
      : io_(std::move(io)),
        strand_(std::move(strand)),
        wire_(std::move(wire)),
        max_queued_(max_queued),
        wake_(strand_) {}

  // --- the handler's side ---
  void add_header(std::string_view name, std::string_view value) override {
    wire_.headers.emplace_back(name, value);
  }
  void send(int status, HttpHeaders headers, std::string body) override;
  void begin_stream(int status, HttpHeaders headers) override;
  void write(std::string_view chunk) override;
  void end() override;
  size_t queued_bytes() const override { return out_.size() + in_flight_; }
  size_t max_queued_bytes() const override { return max_queued_; }
  void on_writable(std::function<void()> callback) override;
  void on_closed(std::function<void()> callback) override;
  void on_stopping(std::function<void()> callback) override;
  void post(std::function<void()> work) override;

  // --- the connection's side ---
  bool has_output() const { return !out_.empty(); }
  std::string take_output();  // all that waits; counted as queued until written() has it all
  void written(size_t n);
  bool ended() const { return ended_; }
  int status() const { return status_; }  // 0: not answered yet
  size_t body_bytes() const { return body_bytes_; }
  bool keep_alive() const { return wire_.keep_alive; }
  void refuse_keep_alive() { wire_.keep_alive = false; }  // has an effect before the head only
  void client_left();
  void give_up();  // see on_stopping
  // Cancelled whenever there is something to do.
  net::steady_timer& wake_timer() { return wake_; }

 private:
  void complete();
  void begin(int status, HttpHeaders& headers);
  IoContext io_;  // first: the strand and the timer must not outlive it
  Strand strand_;
  Wire wire_;
  size_t max_queued_, in_flight_ = 0, body_bytes_ = 0;
  int status_ = 0;
  net::steady_timer wake_;
  std::string out_;
  bool started_ = false, ended_ = false, closed_ = false, chunked_ = false;
  std::function<void()> on_writable_, on_closed_, on_stopping_;
};

}  // namespace pagefold
