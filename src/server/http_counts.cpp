#include "server/http_counts.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pagefold {
namespace {

// What clients send as a method must not grow the table.
std::string known_method(std::string_view method) {
  constexpr std::array<std::string_view, 8> kMethods = {"GET",   "HEAD",   "POST",    "PUT",
                                                        "PATCH", "DELETE", "OPTIONS", "none"};
  const bool known = std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end();
  return known ? std::string(method) : "other";
}

}  // namespace

void HttpCounts::add(std::string_view method, std::string_view handler, int status) {
  std::lock_guard lock(mutex_);
  ++counts_[{known_method(method), std::string(handler), status}];
}

std::vector<HttpCounts::Row> HttpCounts::rows() const {
  std::lock_guard lock(mutex_);
  std::vector<Row> out;
  for (const auto& [key, n] : counts_) {
    out.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), n});
  }
  return out;
}

CountedResponder::CountedResponder(std::shared_ptr<Responder> to, HttpCounts& counts,
                                   std::string_view method)
    : ForwardingResponder(std::move(to)), counts_(counts), method_(method) {}

void CountedResponder::send(int status, HttpHeaders headers, std::string body) {
  counts_.add(method_, handler_, status);
  to_->send(status, std::move(headers), std::move(body));
}

void CountedResponder::begin_stream(int status, HttpHeaders headers) {
  counts_.add(method_, handler_, status);
  to_->begin_stream(status, std::move(headers));
}

}  // namespace pagefold
