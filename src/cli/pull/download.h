// One file from an HTTP server to disk: resumed after a cut, checked by size and hash, renamed when
// whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"

namespace pagefold {

struct Download {
  std::string url, token;
  std::filesystem::path target;  // its folder exists
  std::optional<uint64_t> size;  // what the listing promised
  std::string sha256;            // 64 lower-case digits, or empty: not known
  std::string label;             // for messages and the progress bar
  std::string version;           // tells partial files of different revisions apart
  int attempts = 6;              // without progress in between
  int first_delay_ms = 500;      // doubles with each attempt without progress
};

struct Downloaded {
  uint64_t size = 0;
  std::string sha256;  // of what was written
};

// On failure the partial file stays beside the target (".NAME.VERSION.part") so that the next call
// goes on from there; it is removed when its bytes turned out wrong.
Result<Downloaded> download_file(const Download& what);

// "bytes 100-199/200": first byte and total. Exposed for tests.
struct ContentRange {
  uint64_t first = 0;
  std::optional<uint64_t> total;
};
Result<ContentRange> parse_content_range(std::string_view text);
// A strong or weak ETag that is a SHA-256 ("\"<64 hex>\""), else "".
std::string sha256_of_etag(std::string_view etag);

}  // namespace pagefold
