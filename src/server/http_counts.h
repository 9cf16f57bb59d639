// Answers by method, handler and status, for /metrics. What the HTTP layer itself refuses (a broken
// message, a full server) has no handler; a client that left before its answer began is in none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "server/http.h"

namespace pagefold {

// Thread-safe.
class HttpCounts {
 public:
  struct Row {
    std::string method;   // "other": none that is known; "none": the message was not read
    std::string handler;  // the route's path; "none": there is none
    int status = 0;
    uint64_t n = 0;
  };
  void add(std::string_view method, std::string_view handler, int status);
  std::vector<Row> rows() const;  // sorted

 private:
  mutable std::mutex mutex_;
  std::map<std::tuple<std::string, std::string, int>, uint64_t> counts_;
};

// Passes everything on and counts the answer when it begins.
class CountedResponder final : public Responder {
 public:
  // counts outlives it.
  CountedResponder(std::shared_ptr<Responder> to, HttpCounts& counts, std::string_view method);
  void set_handler(std::string_view handler) { handler_ = handler; }

  void add_header(std::string_view name, std::string_view value) override;
  void send(int status, HttpHeaders headers, std::string body) override;
  void begin_stream(int status, HttpHeaders headers) override;
  void write(std::string_view chunk) override { to_->write(chunk); }
  void end() override { to_->end(); }
  size_t queued_bytes() const override { return to_->queued_bytes(); }
  size_t max_queued_bytes() const override { return to_->max_queued_bytes(); }
  void on_writable(std::function<void()> f) override { to_->on_writable(std::move(f)); }
  void on_closed(std::function<void()> f) override { to_->on_closed(std::move(f)); }
  void post(std::function<void()> work) override { to_->post(std::move(work)); }

 private:
  const std::shared_ptr<Responder> to_;
  HttpCounts& counts_;
  const std::string method_;
  std::string handler_ = "none";
};

}  // namespace pagefold
