#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pagefold::cpu {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

// At least one.
size_t whole_pages(size_t bytes, size_t page) {
  return std::max((bytes + page - 1) & ~(page - 1), page);
}

}  // namespace

Pages::~Pages() {
  if (data_) ::munmap(data_, bytes_);
}

// Whole pages, aligned to one.
Result<Pages> Pages::map(size_t bytes, size_t page, int protection, int flags) {
  bytes = whole_pages(bytes, page);
  const size_t slack = page - kSmallPage;
  void* m = ::mmap(nullptr, bytes + slack, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (m == MAP_FAILED) return exhausted("no memory: {} bytes: {}", bytes, std::strerror(errno));
  auto* const data = static_cast<std::byte*>(m);
  // What lies before the first whole page and behind the last goes back.
  const size_t before = -reinterpret_cast<uintptr_t>(data) & (page - 1);
  if (before > 0) ::munmap(data, before);
  if (slack > before) ::munmap(data + before + bytes, slack - before);
  Pages p;
  p.data_ = data + before;
  p.bytes_ = bytes;
  return p;
}

Result<Pages> Pages::allocate(size_t bytes) { return map(bytes, kSmallPage, kReadWrite, 0); }

Result<Pages> Pages::reserve(size_t bytes, size_t page) {
  PF_ASSIGN(Pages p, map(bytes, page, kReadWrite, MAP_NORESERVE));
  ::madvise(p.data_, p.bytes_, page == kSmallPage ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  return p;
}

Result<Pages> Pages::reserve_unusable(size_t bytes) {
  PF_ASSIGN(Pages p, map(bytes, kHugePage, PROT_NONE, 0));
  ::madvise(p.data_, p.bytes_, MADV_HUGEPAGE);
  return p;
}

Status Pages::make_usable(std::byte* at, size_t bytes) {
  if (::mprotect(at, bytes, kReadWrite) == 0) return ok_status();
  return exhausted("no memory: {} bytes: {}", bytes, std::strerror(errno));
}

Result<std::byte*> LastingMemory::take(size_t bytes) {
  constexpr size_t kLine = 64, kRegion = size_t{64} << 20;
  bytes = (bytes + kLine - 1) / kLine * kLine;
  if (bytes > static_cast<size_t>(end_ - free_)) {
    // As many addresses as are in use already, or where that is refused (RLIMIT_AS) a bare few.
    auto region = Pages::reserve_unusable(std::max({bytes, reserved_, kRegion}));
    if (!region.ok()) region = Pages::reserve_unusable(bytes);
    PF_TRY(region.status());
    free_ = usable_end_ = region->data();
    end_ = free_ + region->size();
    reserved_ += region->size();
    regions_.push_back(*std::move(region));
  }
  std::byte* const data = free_;
  if (data + bytes > usable_end_) {
    const size_t more = whole_pages(static_cast<size_t>(data + bytes - usable_end_), kHugePage);
    PF_TRY(Pages::make_usable(usable_end_, more));
    usable_end_ += more;
  }
  free_ += bytes;
  return data;
}

Status FloatBuffer::ensure(size_t n) {
  if (pages_.size() >= n * sizeof(float)) return ok_status();
  PF_ASSIGN(pages_, Pages::allocate(n * sizeof(float)));
  return ok_status();
}

}  // namespace pagefold::cpu
