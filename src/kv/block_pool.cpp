#include "kv/block_pool.h"

#include <bit>

#include "base/check.h"

namespace pagefold {

BlockPool::BlockPool(uint32_t n_blocks) : total_(n_blocks), free_(n_blocks) {
  PF_CHECK(n_blocks > 0 && n_blocks < kNoBlock, "block count out of range");
  owners_.reset(static_cast<uint32_t*>(std::calloc(n_blocks, sizeof(uint32_t))));
  PF_CHECK(owners_ != nullptr, "out of memory for block owners");
  held_.assign((size_t{n_blocks} + 63) / 64, 0);
  size_t bits = n_blocks;
  do {
    const size_t words = (bits + 63) / 64;
    auto& level = levels_.emplace_back(words, ~uint64_t{0});
    if (bits % 64 != 0) level.back() = (uint64_t{1} << (bits % 64)) - 1;
    bits = words;
  } while (bits > 1);
}

BlockId BlockPool::take_lowest() {
  size_t index = 0;
  for (size_t l = levels_.size(); l-- > 0;) {
    const uint64_t word = levels_[l][index];
    PF_DCHECK(word != 0);
    index = index * 64 + static_cast<size_t>(std::countr_zero(word));
  }
  size_t bit = index;
  for (auto& level : levels_) {
    uint64_t& word = level[bit / 64];
    word &= ~(uint64_t{1} << (bit % 64));
    if (word != 0) break;
    bit /= 64;
  }
  return static_cast<BlockId>(index);
}

bool BlockPool::allocate(std::span<BlockId> out) {
  if (out.size() > free_) return false;
  for (BlockId& id : out) {
    id = take_lowest();
    PF_DCHECK(owners_[id] == 0);
    owners_[id] = 1;
  }
  free_ -= static_cast<uint32_t>(out.size());
  if (log_ != nullptr) log_->insert(log_->end(), out.begin(), out.end());
  return true;
}

void BlockPool::share(BlockId block) {
  PF_CHECK(block < total_ && owners_[block] > 0, "sharing a free block");
  if (++owners_[block] == 2 && is_held(block)) --idle_;
}

void BlockPool::hold(BlockId block) {
  PF_CHECK(block < total_ && owners_[block] > 0 && !is_held(block), "holding a free or held block");
  ++owners_[block];
  held_[block / 64] |= uint64_t{1} << (block % 64);
}

bool BlockPool::unhold(BlockId block) {
  PF_CHECK(block < total_ && is_held(block), "letting go of a block that is not held");
  held_[block / 64] &= ~(uint64_t{1} << (block % 64));
  if (owners_[block] == 1) --idle_;
  return release(block);
}

bool BlockPool::release(BlockId block) {
  PF_CHECK(block < total_ && owners_[block] > 0, "releasing a free block");
  if (--owners_[block] > 0) {
    if (owners_[block] == 1 && is_held(block)) ++idle_;
    return false;
  }
  PF_DCHECK(!is_held(block));
  size_t bit = block;
  for (auto& level : levels_) {
    uint64_t& word = level[bit / 64];
    const bool had_any = word != 0;
    word |= uint64_t{1} << (bit % 64);
    if (had_any) break;
    bit /= 64;
  }
  ++free_;
  return true;
}

uint32_t BlockPool::owners(BlockId block) const {
  PF_CHECK(block < total_);
  return owners_[block];
}

void BlockPool::check_invariants() const {
  uint32_t free = 0, idle = 0;
  for (uint32_t b = 0; b < total_; ++b) {
    const bool bit = (levels_[0][b / 64] >> (b % 64) & 1) != 0;
    PF_CHECK(bit == (owners_[b] == 0), "free bit and owner count disagree");
    free += bit ? 1 : 0;
    PF_CHECK(!is_held(b) || owners_[b] > 0, "the index holds a free block");
    idle += is_held(b) && owners_[b] == 1 ? 1 : 0;
  }
  PF_CHECK(free == free_, "free count is wrong");
  PF_CHECK(idle == idle_, "the count of blocks that only the index owns is wrong");
  for (size_t l = 1; l < levels_.size(); ++l) {
    for (size_t i = 0; i < levels_[l - 1].size(); ++i) {
      const bool bit = (levels_[l][i / 64] >> (i % 64) & 1) != 0;
      PF_CHECK(bit == (levels_[l - 1][i] != 0), "a summary bit is wrong");
    }
  }
}

}  // namespace pagefold
