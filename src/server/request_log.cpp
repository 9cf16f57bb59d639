#include "server/request_log.h"

#include <chrono>
#include <iterator>

namespace pagefold {
namespace {

int64_t steady_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

// Probes (GET) are for --log-level debug.
RequestLog::RequestLog(const HttpRequest& request, const HttpHeaders& added)
    : level_(request.method == "POST" ? log::Level::info : log::Level::debug),
      begin_ns_(steady_ns()) {
  if (!log::enabled(level_)) return;
  constexpr size_t kMostPath = 128;  // as sent: neither spaces nor control characters
  text_ = fmt::format("request id={} method={} path={}", request.id, request.method,
                      request.path().substr(0, kMostPath));
  for (const auto& [name, value] : added) {
    if (name == "traceparent") fmt::format_to(std::back_inserter(text_), " traceparent={}", value);
  }
}

void RequestLog::write(int status, size_t body_bytes, bool complete) const {
  if (text_.empty()) return;
  log::write(level_, fmt::format("{} status={} bytes={} ms={}{}", text_, status, body_bytes,
                                 (steady_ns() - begin_ns_) / 1'000'000, complete ? "" : " left=1"));
}

}  // namespace pagefold
