#include "backend/cpu/kv_arena.h"

#include <sys/mman.h>

#include <algorithm>

namespace pagefold::cpu {

Status KvArena::init(const kernels::KvLayout& layout, uint32_t n_blocks) {
  layout_ = layout;
  PF_ASSIGN(pages_, Pages::allocate(layout.block_bytes() * n_blocks, /*reserve_only=*/true));
  return ok_status();
}

uint64_t KvArena::resident_bytes() const {
  constexpr size_t kPage = 4096, kWindow = size_t{1} << 30;
  uint64_t resident = 0;
  std::vector<unsigned char> map;
  for (size_t at = 0; at < pages_.size(); at += kWindow) {
    const size_t bytes = std::min(kWindow, pages_.size() - at);
    map.resize((bytes + kPage - 1) / kPage);
    if (::mincore(pages_.data() + at, bytes, map.data()) != 0) return 0;
    for (const unsigned char m : map) resident += (m & 1) * kPage;
  }
  return resident;
}

}  // namespace pagefold::cpu
