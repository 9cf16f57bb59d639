#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace pagefold::cpu {

Pages::~Pages() {
  if (data_) ::munmap(data_, bytes_);
}

Result<Pages> Pages::allocate(size_t bytes, bool reserve_only) {
  Pages p;
  p.bytes_ = (bytes + 4095) & ~size_t{4095};
  if (p.bytes_ == 0) p.bytes_ = 4096;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (reserve_only ? MAP_NORESERVE : 0);
  void* m = ::mmap(nullptr, p.bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (m == MAP_FAILED) return exhausted("no memory: {} bytes: {}", p.bytes_, std::strerror(errno));
  p.data_ = static_cast<std::byte*>(m);
  if (reserve_only) ::madvise(m, p.bytes_, MADV_NOHUGEPAGE);
  return p;
}

Status FloatBuffer::ensure(size_t n) {
  if (pages_.size() >= n * sizeof(float)) return ok_status();
  PF_ASSIGN(pages_, Pages::allocate(n * sizeof(float)));
  return ok_status();
}

}  // namespace pagefold::cpu
