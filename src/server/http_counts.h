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

#include "server/forwarding_responder.h"

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
class CountedResponder final : public ForwardingResponder {
 public:
  // counts outlives it.
  CountedResponder(std::shared_ptr<Responder> to, HttpCounts& counts, std::string_view method);
  void set_handler(std::string_view handler) { handler_ = handler; }

  void send(int status, HttpHeaders headers, std::string body) override;
  void begin_stream(int status, HttpHeaders headers) override;

 private:
  HttpCounts& counts_;
  const std::string method_;
  std::string handler_ = "none";
};

}  // namespace pagefold
