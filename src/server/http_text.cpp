#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "server/http.h"

namespace pagefold {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view HttpRequest::path() const {
  std::string_view path = target;
  // The absolute form, "http://host/path", is what a client sends that takes this for a proxy.
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (path.size() >= scheme.size() &&
        equal_ignoring_case(path.substr(0, scheme.size()), scheme)) {
      path.remove_prefix(std::min(path.find('/', scheme.size()), path.size()));
      if (path.empty()) path = "/";
      break;
    }
  }
  return path.substr(0, std::min(path.find('?'), path.size()));
}

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (equal_ignoring_case(key, name)) return value;
  }
  return {};
}

std::string_view http_reason(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Entity";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

std::string http_head(int status, const HttpHeaders& headers, const HttpFraming& framing) {
  std::string out = fmt::format("HTTP/1.{} {} {}\r\nServer: pagefold\r\n", framing.http10 ? 0 : 1,
                                status, http_reason(status));
  for (const auto& [name, value] : headers) {
    out += name;
    out += ": ";
    std::copy_if(value.begin(), value.end(), std::back_inserter(out),
                 [](char c) { return c != '\r' && c != '\n' && c != '\0'; });
    out += "\r\n";
  }
  if (framing.length >= 0)
    fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", framing.length);
  if (framing.chunked) out += "Transfer-Encoding: chunked\r\n";
  if (!framing.keep_alive) {
    out += "Connection: close\r\n";
  } else if (framing.http10) {
    out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
  return out;
}

void append_http_chunk(std::string& out, std::string_view data) {
  if (data.empty()) return;
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", data.size());
  out += data;
  out += "\r\n";
}

}  // namespace pagefold
