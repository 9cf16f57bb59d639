#include "net/url.h"

#include <algorithm>

namespace pagefold {

std::string Url::host_header() const {
  const std::string name = host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
  return port == (https ? "443" : "80") ? name : fmt::format("{}:{}", name, port);
}

std::string Url::text() const {
  return fmt::format("{}://{}{}", https ? "https" : "http", host_header(), path);
}

Result<Url> parse_url(std::string_view text) {
  const auto fault = [&](std::string_view why) { return bad_input("address '{}': {}", text, why); };
  Url url;
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    url.https = false;
    rest.remove_prefix(7);
  } else {
    return fault("must start with https:// or http://");
  }
  // A space or a line break would end the request line early.
  if (std::any_of(text.begin(), text.end(),
                  [](char c) { return static_cast<unsigned char>(c) <= 32 || c == 127; })) {
    return fault("white space in it");
  }
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, end);
  rest.remove_prefix(end);
  rest = rest.substr(0, rest.find('#'));
  url.path = rest.starts_with('/') ? std::string(rest) : fmt::format("/{}", rest);
  if (authority.find('@') != std::string_view::npos)
    return fault("user names are not taken from it");
  size_t colon = authority.rfind(':');
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return fault("no closing ']'");
    url.host = authority.substr(1, close - 1);
    authority.remove_prefix(close + 1);
    colon = authority.find(':');
    if (!authority.empty() && colon != 0) return fault("expected ':PORT' after ']'");
  } else {
    url.host = authority.substr(0, colon);
  }
  url.port = colon == std::string_view::npos ? (url.https ? "443" : "80")
                                             : std::string(authority.substr(colon + 1));
  const bool digits =
      !url.port.empty() && url.port.size() <= 5 &&
      std::all_of(url.port.begin(), url.port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return fault("the port is not a number");
  if (url.host.empty()) return fault("no host");
  std::transform(url.host.begin(), url.host.end(), url.host.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return url;
}

Result<Url> resolve_location(const Url& base, std::string_view location) {
  if (location.starts_with("//")) {
    return parse_url((base.https ? "https:" : "http:") + std::string(location));
  }
  if (location.starts_with("/")) {
    Url origin = base;
    origin.path.clear();
    return parse_url(origin.text() + std::string(location));
  }
  return parse_url(location);
}

std::string encode_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace pagefold
