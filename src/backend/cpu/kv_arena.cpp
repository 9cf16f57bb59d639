#include "backend/cpu/kv_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace pagefold::cpu {
namespace {

void set_bit(std::vector<uint64_t>& bits, size_t i) { bits[i / 64] |= uint64_t{1} << (i % 64); }
void clear_bit(std::vector<uint64_t>& bits, size_t i) {
  bits[i / 64] &= ~(uint64_t{1} << (i % 64));
}

}  // namespace

Status KvArena::init(const kernels::KvLayout& layout, uint32_t n_blocks, bool huge_pages) {
  layout_ = layout;
  return init(layout.block_bytes(), n_blocks, huge_pages);
}

Status KvArena::init(uint64_t block_bytes, uint32_t n_blocks, bool huge_pages) {
  block_bytes_ = block_bytes;
  page_bytes_ = huge_pages ? kHugePage : kSmallPage;
  PF_ASSIGN(pages_, Pages::reserve(block_bytes * n_blocks, page_bytes_));
  n_pages_ = pages_.size() / page_bytes_;
  taken_.assign((size_t{n_blocks} + 63) / 64, 0);
  committed_.assign((n_pages_ + 63) / 64, 0);
  spare_.assign(committed_.size(), 0);
  users_.assign(n_pages_, 0);
  memory_ = {};
  return ok_status();
}

KvArena::PageRange KvArena::pages_of(BlockId block) const {
  const size_t begin = block * block_bytes(), end = begin + block_bytes();
  return {begin / page_bytes_, (end + page_bytes_ - 1) / page_bytes_};
}

// Commits `page` and the uncommitted ones after it, up to kCommitBytes.
Status KvArena::commit(size_t page) {
  const size_t most = std::min(n_pages_, page + std::max(kCommitBytes / page_bytes_, size_t{1}));
  size_t end = page + 1;
  while (end < most && !bit(committed_, end)) ++end;
  std::byte* at = pages_.data() + page * page_bytes_;
  const size_t bytes = (end - page) * page_bytes_;
  ++memory_.commit_calls;
#ifdef MADV_POPULATE_WRITE
  int rc = 0;
  do {
    rc = ::madvise(at, bytes, MADV_POPULATE_WRITE);
  } while (rc != 0 && (errno == EINTR || errno == EAGAIN));
  if (rc != 0 && errno == ENOMEM) {
    return exhausted("the system has no memory for {} more bytes of KV cache", bytes);
  }
#else
  const int rc = -1;
#endif
  if (rc != 0) {  // kernels before 5.14: one fault a page
    for (size_t i = 0; i < bytes; i += kSmallPage) {
      auto* p = reinterpret_cast<volatile unsigned char*>(at + i);
      *p = *p;
    }
  }
  for (size_t p = page; p < end; ++p) {
    set_bit(committed_, p);
    set_bit(spare_, p);
  }
  memory_.committed_bytes += bytes;
  memory_.spare_bytes += bytes;
  return ok_status();
}

Status KvArena::take(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    if (bit(taken_, block)) continue;
    const PageRange range = pages_of(block);
    for (size_t p = range.first; p < range.end; ++p) {
      if (!bit(committed_, p)) PF_TRY(commit(p));
    }
    for (size_t p = range.first; p < range.end; ++p) {
      if (users_[p]++ == 0) {
        clear_bit(spare_, p);
        memory_.spare_bytes -= page_bytes_;
      }
    }
    set_bit(taken_, block);
  }
  return ok_status();
}

void KvArena::free(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    if (!bit(taken_, block)) continue;
    clear_bit(taken_, block);
    const PageRange range = pages_of(block);
    for (size_t p = range.first; p < range.end; ++p) {
      PF_CHECK(users_[p] > 0, "page {} has no blocks to free", p);
      if (--users_[p] == 0) {
        set_bit(spare_, p);
        memory_.spare_bytes += page_bytes_;
      }
    }
  }
}

uint64_t KvArena::release_run(size_t first, size_t end) {
  const size_t bytes = (end - first) * page_bytes_;
  ++memory_.release_calls;
  if (::madvise(pages_.data() + first * page_bytes_, bytes, MADV_DONTNEED) != 0) return 0;
  for (size_t p = first; p < end; ++p) {
    clear_bit(committed_, p);
    clear_bit(spare_, p);
  }
  memory_.committed_bytes -= bytes;
  memory_.spare_bytes -= bytes;
  memory_.released_bytes += bytes;
  return bytes;
}

uint64_t KvArena::release(uint64_t reserve_bytes, uint64_t least_bytes) {
  const uint64_t spare = memory_.spare_bytes;
  if (spare <= reserve_bytes || spare - reserve_bytes < least_bytes) return 0;
  size_t to_give = static_cast<size_t>((spare - reserve_bytes) / page_bytes_);
  uint64_t given = 0;
  size_t p = n_pages_;  // one past the page looked at
  while (to_give > 0 && p > 0) {
    // Down to the next spare page, whole words at a time.
    const size_t word = (p - 1) / 64;
    const uint64_t below = spare_[word] & (~uint64_t{0} >> (63 - (p - 1) % 64));
    if (below == 0) {
      p = word * 64;
      continue;
    }
    const size_t end = word * 64 + 64 - static_cast<size_t>(std::countl_zero(below));
    size_t first = end - 1;
    while (first > 0 && end - first < to_give && bit(spare_, first - 1)) --first;
    given += release_run(first, end);
    to_give -= end - first;
    p = first;
  }
  return given;
}

}  // namespace pagefold::cpu
