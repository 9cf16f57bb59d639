#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pagefold::cpu {
namespace {

// At least one.
size_t whole_pages(size_t bytes, size_t page) {
  return std::max((bytes + page - 1) & ~(page - 1), page);
}

}  // namespace

Pages::~Pages() {
  if (data_) ::munmap(data_, bytes_);
}

Result<Pages> Pages::map(size_t bytes, int flags) {
  Pages p;
  void* m =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (m == MAP_FAILED) return exhausted("no memory: {} bytes: {}", bytes, std::strerror(errno));
  p.data_ = static_cast<std::byte*>(m);
  p.bytes_ = bytes;
  return p;
}

Result<Pages> Pages::allocate(size_t bytes) { return map(whole_pages(bytes, kSmallPage), 0); }

Result<Pages> Pages::reserve(size_t bytes, size_t page) {
  bytes = whole_pages(bytes, page);
  const size_t slack = page - kSmallPage;
  PF_ASSIGN(Pages p, map(bytes + slack, MAP_NORESERVE));
  // What lies before the first whole page and behind the last goes back.
  const size_t before = -reinterpret_cast<uintptr_t>(p.data_) & (page - 1);
  if (before > 0) ::munmap(p.data_, before);
  if (slack > before) ::munmap(p.data_ + before + bytes, slack - before);
  p.data_ += before;
  p.bytes_ = bytes;
  ::madvise(p.data_, bytes, page == kSmallPage ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  return p;
}

Status FloatBuffer::ensure(size_t n) {
  if (pages_.size() >= n * sizeof(float)) return ok_status();
  PF_ASSIGN(pages_, Pages::allocate(n * sizeof(float)));
  return ok_status();
}

}  // namespace pagefold::cpu
