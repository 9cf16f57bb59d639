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

bool SequenceCache::reserve(BlockPool& pool, int64_t rows) {
  const int64_t needed = blocks_needed(rows);
  if (needed == 0) return true;
  if (needed > pool.free_count()) return false;
  int64_t longest = 0;
  for (const TableView& v : views_) longest = std::max(longest, blocks_for(v.len + rows));
  grow_capacity(longest);
  for (size_t t = 0; t < views_.size(); ++t) {
    const int64_t want = blocks_for(views_[t].len + rows);
    if (want <= blocks_[t]) continue;
    const bool ok = pool.allocate({ids(t) + blocks_[t], static_cast<size_t>(want - blocks_[t])});
    PF_CHECK(ok, "blocks were counted wrongly");
    held_ += want - blocks_[t];
    blocks_[t] = want;
  }
  return true;
}

void SequenceCache::commit(BlockPool& pool, int64_t rows, std::vector<BlockId>& freed) {
  const auto heads = static_cast<size_t>(shape_.n_kv_heads);
  for (size_t t = 0; t < views_.size(); ++t) {
    TableView& v = views_[t];
    v.len += rows;
    PF_CHECK(blocks_for(v.len) <= blocks_[t], "commit without reserve");
    const int64_t window = shape_.layer_window.empty() ? 0 : shape_.layer_window[t / heads];
    if (window <= 0) continue;
    const int64_t start = std::max<int64_t>(0, v.len - window) / shape_.block_size;
    for (int64_t b = v.start / shape_.block_size; b < start; ++b) {
      BlockId& id = ids(t)[b];
      if (pool.release(id)) freed.push_back(id);
      id = kNoBlock;
      --held_;
    }
    v.start = std::max(v.start, start * shape_.block_size);
  }
}

void SequenceCache::free_all(BlockPool& pool, std::vector<BlockId>& freed) {
  for (size_t t = 0; t < views_.size(); ++t) {
    for (int64_t b = 0; b < blocks_[t]; ++b) {
      BlockId& id = ids(t)[b];
      if (id != kNoBlock && pool.release(id)) freed.push_back(id);
      id = kNoBlock;
    }
    blocks_[t] = 0;
    views_[t].len = views_[t].start = 0;
  }
  held_ = 0;
}

int64_t SequenceCache::held_slots() const {
  int64_t slots = 0;
  for (const TableView& v : views_) slots += v.len - v.start;
  return slots;
}

}  // namespace pagefold
