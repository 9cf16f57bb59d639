#include "engine/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/check.h"

namespace pagefold {
namespace {

// Calls f(bytes left) until `n` bytes are done; f returns as read() and write() do.
template <class F>
int64_t repeat(size_t n, F f) {
  size_t done = 0;
  while (done < n) {
    const ssize_t now = f(done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return now;
    done += static_cast<size_t>(now);
  }
  return static_cast<int64_t>(done);
}

}  // namespace

Result<std::unique_ptr<SpillFile>> SpillFile::create(const std::string& folder,
                                                     uint64_t most_bytes) {
  int fd = -1;
#ifdef O_TMPFILE
  fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
#endif
  if (fd < 0) {  // file systems without such files
    std::string path = folder + "/pagefold-spill-XXXXXX";
    fd = ::mkostemp(path.data(), O_CLOEXEC);
    if (fd >= 0) ::unlink(path.c_str());
  }
  if (fd < 0) {
    return io_error("{}: cannot make a file for paused requests there: {}", folder,
                    std::strerror(errno));
  }
  return std::unique_ptr<SpillFile>(new SpillFile(fd, most_bytes));
}

SpillFile::~SpillFile() {
  PF_CHECK(used_ == 0, "the spill file ended with extents");
  ::close(fd_);
}

Result<std::unique_ptr<SpillFile::Extent>> SpillFile::take(uint64_t bytes) {
  if (bytes > most_ || used_ > most_ - bytes) {
    return exhausted("{} of {} bytes for paused requests are in use, {} more are needed", used_,
                     most_, bytes);
  }
  used_ += bytes;
  for (auto it = holes_.begin(); it != holes_.end(); ++it) {
    const auto [offset, room] = *it;
    if (room < bytes) continue;
    holes_.erase(it);
    if (room > bytes) holes_.emplace(offset + bytes, room - bytes);
    return std::make_unique<Extent>(*this, offset, bytes);
  }
  const uint64_t offset = end_;
  end_ += bytes;
  return std::make_unique<Extent>(*this, offset, bytes);
}

void SpillFile::release(uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return;
  PF_CHECK(used_ >= bytes, "a spilled extent was freed twice");
  used_ -= bytes;
  const uint64_t freed = offset, n = bytes;
  auto next = holes_.upper_bound(offset);
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      holes_.erase(before);
    }
  }
  if (next != holes_.end() && next->first == offset + bytes) {
    bytes += next->second;
    holes_.erase(next);
  }
  const bool shrinks = offset + bytes == end_;
  if (shrinks) {
    end_ = offset;
  } else {
    holes_.emplace(offset, bytes);
  }
  const auto empty = [fd = fd_, freed, n, shrinks, end = end_] {
#ifdef FALLOC_FL_PUNCH_HOLE
    // Best effort: where it is not supported, the space is used again by the next extent.
    (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(freed),
                      static_cast<off_t>(n));
#endif
    if (shrinks) (void)::ftruncate(fd, static_cast<off_t>(end));
  };
  if (run_) {
    run_(empty);
  } else {
    empty();
  }
}

Status SpillFile::Place::write(uint64_t at, std::span<const std::byte> data) const {
  PF_CHECK(at + data.size() <= bytes, "a write beyond the extent");
  const int64_t done = repeat(data.size(), [&](size_t from) {
    return ::pwrite(fd, data.data() + from, data.size() - from,
                    static_cast<off_t>(offset + at + from));
  });
  if (done == static_cast<int64_t>(data.size())) return ok_status();
  return exhausted("the cache of a paused request cannot be written: {}", std::strerror(errno));
}

Status SpillFile::Place::read(uint64_t at, std::span<std::byte> data) const {
  PF_CHECK(at + data.size() <= bytes, "a read beyond the extent");
  const int64_t done = repeat(data.size(), [&](size_t from) {
    return ::pread(fd, data.data() + from, data.size() - from,
                   static_cast<off_t>(offset + at + from));
  });
  if (done == static_cast<int64_t>(data.size())) return ok_status();
  return io_error("the cache of a paused request cannot be read back: {}",
                  done < 0 ? std::strerror(errno) : "the file is too short");
}

}  // namespace pagefold
