#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace pagefold {
namespace {

struct Fd {
  int value = -1;
  ~Fd() {
    if (value >= 0) ::close(value);
  }
};

Result<size_t> regular_file_size(const Fd& fd, const std::string& path) {
  struct stat st {};
  if (::fstat(fd.value, &st) != 0) return io_error("{}: {}", path, std::strerror(errno));
  if (!S_ISREG(st.st_mode)) return bad_input("{}: not a regular file", path);
  return static_cast<size_t>(st.st_size);
}

Result<size_t> open_regular(const std::string& path, Fd& fd) {
  fd.value = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd.value < 0) {
    if (errno == ENOENT) return not_found("{}: no such file", path);
    return io_error("{}: {}", path, std::strerror(errno));
  }
  return regular_file_size(fd, path);
}

Status write_all(int fd, std::string_view rest, const std::string& path) {
  while (!rest.empty()) {
    const ssize_t n = ::write(fd, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return io_error("{}: {}", path, std::strerror(errno));
    rest.remove_prefix(static_cast<size_t>(n));
  }
  return ok_status();
}

// Every live map, by address: dropping "pages" of any other memory would zero it. Never destroyed:
// maps in static objects may outlive it otherwise.
struct LiveMaps {
  std::mutex mutex;
  std::map<uintptr_t, size_t> bytes;
};
LiveMaps& live_maps() {
  static auto* maps = new LiveMaps;
  return *maps;
}

void drop_whole_pages(const std::byte* data, size_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

MappedFile::~MappedFile() {
  if (!data_) return;
  LiveMaps& live = live_maps();
  const std::lock_guard lock(live.mutex);
  live.bytes.erase(reinterpret_cast<uintptr_t>(data_));
  ::munmap(const_cast<std::byte*>(data_), size_);
}
MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  MappedFile file;
  file.path_ = path.string();
  Fd fd;
  PF_ASSIGN(file.size_, open_regular(file.path_, fd));
  if (file.size_ == 0) return file;
  void* p = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd.value, 0);
  if (p == MAP_FAILED) return io_error("{}: mmap: {}", file.path_, std::strerror(errno));
  file.data_ = static_cast<const std::byte*>(p);
  LiveMaps& live = live_maps();
  const std::lock_guard lock(live.mutex);
  live.bytes.emplace(reinterpret_cast<uintptr_t>(p), file.size_);
  return file;
}

void MappedFile::drop_pages() const {
  if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

void MappedFile::drop_range(size_t offset, size_t bytes) const {
  if (offset >= size_) return;
  drop_whole_pages(data_ + offset, std::min(bytes, size_ - offset));
}

void drop_mapped(std::span<const std::byte> bytes) {
  LiveMaps& live = live_maps();
  const std::lock_guard lock(live.mutex);
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  auto it = live.bytes.upper_bound(begin);
  if (it == live.bytes.begin()) return;
  --it;
  if (begin - it->first <= it->second && bytes.size() <= it->second - (begin - it->first)) {
    drop_whole_pages(bytes.data(), bytes.size());
  }
}

Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes) {
  Fd fd;
  const std::string name = path.string();
  PF_ASSIGN(const size_t size, open_regular(name, fd));
  if (size > max_bytes) return bad_input("{}: {} bytes, the limit is {}", name, size, max_bytes);
  std::string text(size, '\0');
  size_t got = 0;
  while (got < size) {
    const ssize_t n = ::read(fd.value, text.data() + got, size - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("{}: {}", name, std::strerror(errno));
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  text.resize(got);
  return text;
}

Status write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  const std::string target = path.string();
  std::string temporary = target + ".XXXXXX";
  Fd fd;
  fd.value = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd.value < 0) return io_error("{}: {}", target, std::strerror(errno));
  Status written = write_all(fd.value, content, target);
  if (written.ok() && (::fchmod(fd.value, 0644) != 0 || ::fsync(fd.value) != 0)) {
    written = io_error("{}: {}", target, std::strerror(errno));
  }
  if (written.ok() && ::rename(temporary.c_str(), target.c_str()) != 0) {
    written = io_error("{}: {}", target, std::strerror(errno));
  }
  if (!written.ok()) ::unlink(temporary.c_str());
  return written;
}

}  // namespace pagefold
