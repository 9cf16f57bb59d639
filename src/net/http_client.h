// One HTTP request at a time, as a client: http and https, redirects, ranges, bodies that stream.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/url.h"

namespace pagefold {

struct HttpGet {
  std::string url;
  std::string token;  // sent as a bearer token to the first address's origin only; may be empty
  uint64_t range_from = 0;  // > 0: asks for the bytes from here on
  double total_s = 0;       // > 0: most seconds of all, in place of 30 without a byte
};

// JSON to a server. Redirects are replies like any other.
struct HttpPost {
  std::string url;
  std::string token;  // sent as a bearer token; may be empty
  std::string body;   // JSON
  double total_s = 300;
};

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case; of the last hop, and
                                               // x-linked-* of the first one's origin
  std::string final_url;
  std::string failure;  // status >= 400: the first 64 KiB of the body
  std::string header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? std::string() : it->second;
  }
};

// Called once with the reply's head (no redirect), then with pieces of the body as they come. A
// failure ends the transfer and is returned. Bodies of failed requests (status >= 400) are not
// handed on.
struct HttpSink {
  std::function<Status(const HttpReply&)> head;
  std::function<Status(std::string_view)> body;
};

// kUnavailable: the connection failed, was cut, or nothing came for 30 seconds (worth another try).
// kDeadlineExceeded: total_s is over. A reply of any status is a success here: the caller judges
// it.
Result<HttpReply> http_get(const HttpGet& get, const HttpSink& sink);
Result<HttpReply> http_post(const HttpPost& post, const HttpSink& sink);

// The whole body as a string; more than max_bytes is an error.
Result<std::string> http_get_text(const HttpGet& get, size_t max_bytes, HttpReply& reply);

}  // namespace pagefold
