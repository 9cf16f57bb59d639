// http and https addresses: just what a download needs.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

struct Url {
  bool https = true;
  std::string host;  // without the brackets of an IPv6 address
  std::string port;  // always set
  std::string path;  // "/..." with the query, as sent
  std::string host_header() const;
  std::string text() const;
  bool same_origin(const Url& other) const {
    return https == other.https && host == other.host && port == other.port;
  }
};

Result<Url> parse_url(std::string_view text);
// What a Location header means when it was sent by `base`: absolute, "//host/...", or "/path".
Result<Url> resolve_location(const Url& base, std::string_view location);
// Percent-encodes all but unreserved characters and '/'.
std::string encode_path(std::string_view path);

}  // namespace pagefold
