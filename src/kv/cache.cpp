#include "kv/cache.h"

#include <algorithm>

#include "base/check.h"

namespace pagefold {

int64_t CacheShape::peak_blocks(int64_t slots, int64_t step_rows) const {
  int64_t total = 0;
  for (int l = 0; l < n_layers; ++l) {
    const int64_t window = layer_window.empty() ? 0 : layer_window[static_cast<size_t>(l)];
    int64_t held = slots;
    // Before a step the held slots start at a block boundary at or below len - window.
    if (window > 0) held = std::min(slots, window + step_rows + block_size - 1);
    total += (held + block_size - 1) / block_size * n_kv_heads;
  }
  return total;
}

SequenceCache::SequenceCache(const CacheShape& shape, int64_t expected_slots)
    : shape_(shape),
      expected_slots_(expected_slots),
      blocks_(static_cast<size_t>(shape.n_tables()), 0),
      views_(static_cast<size_t>(shape.n_tables())) {}

SequenceCache::~SequenceCache() { PF_CHECK(held_ == 0, "a sequence ended while holding blocks"); }

int64_t SequenceCache::blocks_needed(int64_t rows) const {
  int64_t needed = 0;
  for (size_t t = 0; t < views_.size(); ++t) {
    needed += std::max<int64_t>(0, blocks_for(views_[t].len + rows) - blocks_[t]);
    if (tail_shared_ && rows > 0 && partial_tail(t)) ++needed;
  }
  return needed;
}

void SequenceCache::grow_capacity(int64_t blocks) {
  if (blocks <= capacity_) return;
  const int64_t capacity =
      std::max<int64_t>({blocks, blocks_for(expected_slots_), 2 * capacity_, 16});
  auto bigger =
      std::make_unique_for_overwrite<BlockId[]>(views_.size() * static_cast<size_t>(capacity));
  for (size_t t = 0; t < views_.size(); ++t) {
    std::copy_n(ids(t), blocks_[t], bigger.get() + t * static_cast<size_t>(capacity));
  }
  ids_ = std::move(bigger);
  capacity_ = capacity;
  for (size_t t = 0; t < views_.size(); ++t) views_[t].blocks = ids(t);
}

// Live bits of slots to come are 1. Kernels read whole chunks of 256 slots.
void SequenceCache::grow_live(size_t t, int64_t slots) {
  auto& bits = live_[t];
  const auto words = static_cast<size_t>((slots + 255) / 256 * 8);
  if (bits.size() < words) bits.resize(std::max(words, 2 * bits.size()), ~uint32_t{0});
  views_[t].live = bits.data();
}

bool SequenceCache::reserve(BlockPool& pool, int64_t rows) {
  copies_.clear();
  int64_t needed = 0, longest = 0;
  for (size_t t = 0; t < views_.size(); ++t) {
    const int64_t want = blocks_for(views_[t].len + rows);
    longest = std::max(longest, want);
    needed += std::max<int64_t>(0, want - blocks_[t]);
    if (tail_shared_ && rows > 0 && partial_tail(t) && pool.owners(ids(t)[blocks_[t] - 1]) > 1) {
      ++needed;
    }
  }
  if (needed == 0 && !(tail_shared_ && rows > 0)) {
    for (size_t t = 0; t < live_.size(); ++t) {
      if (!live_[t].empty()) grow_live(t, views_[t].len + rows);
    }
    return true;
  }
  if (needed > pool.free_count()) return false;
  grow_capacity(longest);
  for (size_t t = 0; t < views_.size(); ++t) {
    if (tail_shared_ && rows > 0 && partial_tail(t)) {
      BlockId& tail = ids(t)[blocks_[t] - 1];
      if (pool.owners(tail) > 1) {
        const BlockId old = tail;
        const bool ok = pool.allocate({&tail, 1});
        PF_CHECK(ok, "blocks were counted wrongly");
        pool.release(old);
        copies_.push_back({old, tail});
      }
    }
    const int64_t want = blocks_for(views_[t].len + rows);
    if (want > blocks_[t]) {
      const bool ok = pool.allocate({ids(t) + blocks_[t], static_cast<size_t>(want - blocks_[t])});
      PF_CHECK(ok, "blocks were counted wrongly");
      held_ += want - blocks_[t];
      blocks_[t] = want;
    }
    if (!live_.empty() && !live_[t].empty()) grow_live(t, views_[t].len + rows);
  }
  if (rows > 0) tail_shared_ = false;
  return true;
}

void SequenceCache::release(BlockPool& pool, BlockId& id, std::vector<BlockId>& freed) {
  if (id == kNoBlock) return;
  if (pool.release(id)) freed.push_back(id);
  id = kNoBlock;
  --held_;
}

int64_t SequenceCache::window_block(size_t t, int64_t slots) const {
  if (shape_.layer_window.empty()) return 0;
  const int64_t window = shape_.layer_window[t / static_cast<size_t>(shape_.n_kv_heads)];
  return window <= 0 ? 0 : std::max<int64_t>(0, slots - window) / shape_.block_size;
}

void SequenceCache::fill(int64_t rows) {
  for (size_t t = 0; t < views_.size(); ++t) {
    views_[t].len += rows;
    PF_CHECK(blocks_for(views_[t].len) <= blocks_[t], "commit without reserve");
  }
}

void SequenceCache::leave_windows(BlockPool& pool, std::vector<BlockId>& freed) {
  if (shape_.layer_window.empty()) return;
  for (size_t t = 0; t < views_.size(); ++t) {
    TableView& v = views_[t];
    const int64_t start = window_block(t, v.len);
    for (int64_t b = v.start / shape_.block_size; b < start; ++b) release(pool, ids(t)[b], freed);
    v.start = std::max(v.start, start * shape_.block_size);
  }
}

void SequenceCache::free_all(BlockPool& pool, std::vector<BlockId>& freed) {
  for (size_t t = 0; t < views_.size(); ++t) {
    for (int64_t b = 0; b < blocks_[t]; ++b) release(pool, ids(t)[b], freed);
    blocks_[t] = 0;
    views_[t].len = views_[t].start = 0;
    views_[t].live = nullptr;
  }
  PF_CHECK(held_ == 0, "held blocks were counted wrongly");
  live_.clear();
  dead_.clear();
  copies_.clear();
  tail_shared_ = tainted_ = false;
}

void SequenceCache::adopt(BlockPool& pool, const BlockId* group) {
  PF_CHECK(!tainted_ && live_.empty(), "a compacted sequence takes no shared blocks");
  int64_t longest = 0;
  for (size_t t = 0; t < views_.size(); ++t) {
    PF_CHECK(!partial_tail(t) && blocks_[t] * shape_.block_size == views_[t].len,
             "shared blocks follow full ones");
    longest = std::max(longest, blocks_[t] + 1);
  }
  grow_capacity(longest);
  for (size_t t = 0; t < views_.size(); ++t) {
    pool.share(group[t]);
    ids(t)[blocks_[t]++] = group[t];
    views_[t].len += shape_.block_size;
    ++held_;
  }
}

void SequenceCache::adopt_chain(BlockPool& pool, std::span<const BlockId* const> groups) {
  PF_CHECK(held_ == 0 && !tainted_ && live_.empty(), "shared blocks come first");
  const auto n = static_cast<int64_t>(groups.size());
  grow_capacity(n);
  for (size_t t = 0; t < views_.size(); ++t) {
    PF_CHECK(blocks_[t] == 0 && views_[t].len == 0, "shared blocks come first");
    const int64_t start = window_block(t, n * shape_.block_size);
    for (int64_t b = 0; b < n; ++b) {
      const BlockId id = b < start ? kNoBlock : groups[static_cast<size_t>(b)][t];
      ids(t)[b] = id;
      if (b < start) continue;
      pool.share(id);
      ++held_;
    }
    blocks_[t] = n;
    views_[t].len = n * shape_.block_size;
    views_[t].start = start * shape_.block_size;
  }
}

void SequenceCache::fork(BlockPool& pool, SequenceCache& child) {
  PF_CHECK(child.held_ == 0 && child.views_.size() == views_.size(), "fork into an empty cache");
  const int64_t longest = blocks_.empty() ? 0 : *std::max_element(blocks_.begin(), blocks_.end());
  child.grow_capacity(longest);
  child.live_ = live_;
  child.dead_ = dead_;
  for (size_t t = 0; t < views_.size(); ++t) {
    // Reserved blocks beyond len hold nothing yet and stay the parent's own.
    const int64_t filled = blocks_for(views_[t].len);
    for (int64_t b = 0; b < filled; ++b) {
      const BlockId id = ids(t)[b];
      child.ids(t)[b] = id;
      if (id == kNoBlock) continue;
      pool.share(id);
      ++child.held_;
    }
    child.blocks_[t] = filled;
    child.views_[t].len = views_[t].len;
    child.views_[t].start = views_[t].start;
    child.views_[t].live =
        child.live_.empty() || child.live_[t].empty() ? nullptr : child.live_[t].data();
  }
  child.tail_shared_ = tail_shared_ = true;
  child.tainted_ = tainted_;
}

int64_t SequenceCache::live_slots(int table) const {
  const auto t = static_cast<size_t>(table);
  return views_[t].len - views_[t].start - (dead_.empty() ? 0 : dead_[t]);
}

int64_t SequenceCache::held_slots() const {
  int64_t slots = 0;
  for (size_t t = 0; t < views_.size(); ++t) slots += live_slots(static_cast<int>(t));
  return slots;
}

}  // namespace pagefold
