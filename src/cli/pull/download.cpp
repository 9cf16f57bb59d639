#include "cli/pull/download.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "base/progress.h"
#include "cli/pull/disk.h"
#include "cli/pull/sha256.h"
#include "net/http_client.h"

namespace pagefold {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> to_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The file that grows; what it holds is always a prefix of the answer.
class Partial {
 public:
  explicit Partial(fs::path path) : path_(std::move(path)) {}
  ~Partial() { close(); }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  Status open() {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) return io_error("{}: {}", path_.string(), std::strerror(errno));
    const off_t end = ::lseek(fd_, 0, SEEK_END);
    if (end < 0) return io_error("{}: {}", path_.string(), std::strerror(errno));
    size_ = static_cast<uint64_t>(end);
    return ok_status();
  }
  Status append(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return disk_error();
      size_ += static_cast<uint64_t>(n);
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return ok_status();
  }
  Status restart() {
    if (::ftruncate(fd_, 0) != 0) return disk_error();
    size_ = 0;
    return ok_status();
  }
  Status publish(const fs::path& target) {
    if (::fsync(fd_) != 0) return disk_error();
    close();
    if (::rename(path_.c_str(), target.c_str()) != 0) {
      return exhausted("{}: {}", target.string(), std::strerror(errno));
    }
    return ok_status();
  }
  void discard() {
    close();
    ::unlink(path_.c_str());
  }
  uint64_t size() const { return size_; }
  bool full() const { return full_; }  // the disk could not take all of it
  const fs::path& path() const { return path_; }

 private:
  // Not kUnavailable: trying again does not make room.
  Status disk_error() {
    full_ = means_full(errno);
    return exhausted("{}: {}", path_.string(), std::strerror(errno));
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  fs::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  bool full_ = false;
};

struct Transfer {
  const Download& what;
  Partial& file;
  Progress& progress;
  std::optional<uint64_t> total;
  std::string sha256;
};

Status on_head(Transfer& t, const HttpReply& reply) {
  if (t.sha256.empty()) t.sha256 = sha256_of_etag(reply.header("x-linked-etag"));
  std::optional<uint64_t> total = to_number(reply.header("x-linked-size"));
  if (reply.status == 206) {
    PF_ASSIGN(const ContentRange range, parse_content_range(reply.header("content-range")));
    if (range.first != t.file.size()) {
      return bad_data("{}: asked for bytes from {}, the server sent them from {}", t.what.label,
                      t.file.size(), range.first);
    }
    if (range.total) total = range.total;
  } else if (reply.status == 200) {
    // The whole file, whatever was asked for.
    PF_TRY(t.file.restart());
    if (const auto length = to_number(reply.header("content-length"))) total = length;
  } else {
    return bad_data("{}: HTTP {} where a file was expected", t.what.label, reply.status);
  }
  if (t.what.size && total && *total != *t.what.size) {
    return bad_data("{}: wrong size: the listing says {} bytes, the server sends {}", t.what.label,
                    *t.what.size, *total);
  }
  t.total = t.what.size ? t.what.size : total;
  return ok_status();
}

Status status_error(const Download& what, const HttpReply& reply) {
  switch (reply.status) {
    case 401:
    case 403:
      return {absl::StatusCode::kPermissionDenied,
              fmt::format("{}: HTTP {}: not allowed; set HF_TOKEN to a token that may read it",
                          what.label, reply.status)};
    case 404:
      return not_found("{}: HTTP 404: there is no such file or model", what.label);
    case 408:
    case 429:
      return io_error("{}: HTTP {}", what.label, reply.status);
    default:
      if (reply.status >= 500) return io_error("{}: HTTP {}", what.label, reply.status);
      return bad_data("{}: HTTP {}", what.label, reply.status);
  }
}

Status attempt(Transfer& t) {
  HttpSink sink;
  sink.head = [&](const HttpReply& reply) { return on_head(t, reply); };
  sink.body = [&](std::string_view bytes) -> Status {
    if (t.total && t.file.size() + bytes.size() > *t.total) {
      return bad_data("{}: wrong size: more than the promised {} bytes", t.what.label, *t.total);
    }
    PF_TRY(t.file.append(bytes));
    t.progress.set(t.file.size());
    return ok_status();
  };
  PF_ASSIGN(const HttpReply reply, http_get({t.what.url, t.what.token, t.file.size()}, sink));
  if (reply.status == 416 && t.file.size() > 0) {
    PF_TRY(t.file.restart());
    return io_error("{}: the server does not know the bytes from there on", t.what.label);
  }
  if (reply.status >= 400) return status_error(t.what, reply);
  if (t.total && t.file.size() < *t.total) {
    return io_error("{}: the connection ended after {} of {} bytes", t.what.label, t.file.size(),
                    *t.total);
  }
  return ok_status();
}

Status fetch_all(Transfer& t) {
  int left = t.what.attempts;
  int delay_ms = t.what.first_delay_ms;
  while (true) {
    const uint64_t before = t.file.size();
    const Status done = attempt(t);
    if (done.ok() || !absl::IsUnavailable(done)) return done;
    if (t.file.size() > before) {
      left = t.what.attempts;
      delay_ms = t.what.first_delay_ms;
    }
    if (--left <= 0) return done;
    log::warn("{}; trying again", message_of(done));
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    delay_ms = std::min(delay_ms * 2, 10000);
  }
}

}  // namespace

Result<ContentRange> parse_content_range(std::string_view text) {
  const auto fault = [&] { return bad_data("Content-Range '{}' makes no sense", text); };
  if (!text.starts_with("bytes ")) return fault();
  std::string_view rest = text.substr(6);
  const size_t dash = rest.find('-');
  const size_t slash = rest.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) {
    return fault();
  }
  const auto first = to_number(rest.substr(0, dash));
  const auto last = to_number(rest.substr(dash + 1, slash - dash - 1));
  if (!first || !last || *last < *first) return fault();
  ContentRange range{*first, std::nullopt};
  if (rest.substr(slash + 1) != "*") {
    range.total = to_number(rest.substr(slash + 1));
    if (!range.total || *range.total <= *last) return fault();
  }
  return range;
}

std::string sha256_of_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() == 66 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, 64);
  const bool hex =
      etag.size() == 64 && etag.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return hex ? std::string(etag) : std::string();
}

Result<Downloaded> download_file(const Download& what) {
  const std::string name = fmt::format(".{}.{}.part", what.target.filename().string(),
                                       what.version.empty() ? "0" : what.version);
  Partial file(what.target.parent_path() / name);
  PF_TRY(file.open());
  if (what.size && file.size() > *what.size) PF_TRY(file.restart());
  Progress progress(what.label, what.size.value_or(0), true);
  Transfer transfer{what, file, progress, what.size, what.sha256};
  // A part that is already whole only needs its hash checked.
  if (!what.size || file.size() < *what.size || *what.size == 0) {
    if (const Status fetched = fetch_all(transfer); !fetched.ok()) {
      const uint64_t got = file.size();
      // On a full disk the part would only keep it full.
      const bool worthless = absl::IsDataLoss(fetched) || got == 0 || file.full();
      if (worthless) file.discard();
      if (!file.full()) return fetched;
      return full_disk(what.label, what.target.parent_path(), transfer.total);
    }
  }
  PF_ASSIGN(std::string hash, sha256_of_file(file.path()));
  if (!transfer.sha256.empty() && hash != transfer.sha256) {
    file.discard();
    return bad_data("{}: wrong hash: expected sha256 {}, got {}; the file was removed, pull again",
                    what.label, transfer.sha256, hash);
  }
  const Downloaded result{file.size(), std::move(hash)};
  if (const Status published = file.publish(what.target); !published.ok()) {
    if (!file.full()) return published;
    file.discard();
    return full_disk(what.label, what.target.parent_path(), result.size);
  }
  return result;
}

}  // namespace pagefold
