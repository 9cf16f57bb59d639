// A responder that passes everything on; derive from it and override what differs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/http.h"

namespace pagefold {

class ForwardingResponder : public Responder {
 public:
  explicit ForwardingResponder(std::shared_ptr<Responder> to) : to_(std::move(to)) {}

  void add_header(std::string_view name, std::string_view value) override {
    to_->add_header(name, value);
  }
  void send(int status, HttpHeaders headers, std::string body) override {
    to_->send(status, std::move(headers), std::move(body));
  }
  void begin_stream(int status, HttpHeaders headers) override {
    to_->begin_stream(status, std::move(headers));
  }
  void write(std::string_view chunk) override { to_->write(chunk); }
  void end() override { to_->end(); }
  size_t queued_bytes() const override { return to_->queued_bytes(); }
  size_t max_queued_bytes() const override { return to_->max_queued_bytes(); }
  void on_writable(std::function<void()> f) override { to_->on_writable(std::move(f)); }
  void on_closed(std::function<void()> f) override { to_->on_closed(std::move(f)); }
  void on_stopping(std::function<void()> f) override { to_->on_stopping(std::move(f)); }
  void post(std::function<void()> work) override { to_->post(std::move(work)); }

 protected:
  const std::shared_ptr<Responder> to_;
};

}  // namespace pagefold
