// The half of SequenceCache that pauses and compacts.
#include <algorithm>

#include "base/check.h"
#include "kv/cache.h"

namespace pagefold {
namespace {

bool block_is_dead(const std::vector<uint32_t>& live, int64_t block, int block_size) {
  const int64_t begin = block * block_size;  // block sizes are multiples of 16
  for (int64_t s = begin; s < begin + block_size; ++s) {
    if ((live[static_cast<size_t>(s / 32)] >> (s % 32) & 1) != 0) return false;
  }
  return true;
}

}  // namespace

CacheLengths SequenceCache::lengths() const {
  CacheLengths l;
  for (const TableView& v : views_) {
    l.len.push_back(v.len);
    l.start.push_back(v.start);
  }
  l.live = live_;
  l.tainted = tainted_;
  return l;
}

void SequenceCache::collect_blocks(std::vector<BlockId>& blocks,
                                   std::vector<int32_t>& filled) const {
  blocks.clear();
  filled.clear();
  for (size_t t = 0; t < views_.size(); ++t) {
    const int64_t len = views_[t].len;
    for (int64_t b = 0; b < blocks_for(len); ++b) {
      if (ids(t)[b] == kNoBlock) continue;
      blocks.push_back(ids(t)[b]);
      filled.push_back(
          static_cast<int32_t>(std::min<int64_t>(shape_.block_size, len - b * shape_.block_size)));
    }
  }
}

bool SequenceCache::restore(BlockPool& pool, const CacheLengths& l,
                            std::span<const BlockId* const> shared) {
  PF_CHECK(held_ == 0 && l.len.size() == views_.size(), "restore into an empty cache");
  PF_CHECK(shared.empty() || !l.tainted, "a compacted sequence takes no shared blocks");
  const auto shared_block = [&](size_t t, int64_t b) {
    return b < static_cast<int64_t>(shared.size()) ? shared[static_cast<size_t>(b)][t] : kNoBlock;
  };
  const auto absent = [&](size_t t, int64_t b) {
    if (b < l.start[t] / shape_.block_size) return true;
    const bool masked = !l.live.empty() && !l.live[t].empty();
    return masked && (b + 1) * shape_.block_size <= l.len[t] &&
           block_is_dead(l.live[t], b, shape_.block_size);
  };
  int64_t needed = 0, longest = 0;
  for (size_t t = 0; t < views_.size(); ++t) {
    const int64_t n = blocks_for(l.len[t]);
    longest = std::max(longest, n);
    for (int64_t b = 0; b < n; ++b) {
      needed += absent(t, b) || shared_block(t, b) != kNoBlock ? 0 : 1;
    }
  }
  if (needed > pool.free_count()) return false;
  grow_capacity(longest);
  live_ = l.live;
  dead_.assign(live_.empty() ? 0 : views_.size(), 0);
  for (size_t t = 0; t < views_.size(); ++t) {
    blocks_[t] = blocks_for(l.len[t]);
    for (int64_t b = 0; b < blocks_[t]; ++b) {
      BlockId& id = ids(t)[b];
      id = kNoBlock;
      if (absent(t, b)) continue;
      ++held_;
      id = shared_block(t, b);
      if (id != kNoBlock) {
        pool.share(id);
        continue;
      }
      const bool ok = pool.allocate({&id, 1});
      PF_CHECK(ok, "blocks were counted wrongly");
    }
    views_[t].len = l.len[t];
    views_[t].start = l.start[t];
    if (live_.empty() || live_[t].empty()) continue;
    views_[t].live = live_[t].data();
    for (int64_t s = 0; s < l.len[t]; ++s) {
      dead_[t] += (live_[t][static_cast<size_t>(s / 32)] >> (s % 32) & 1) == 0 ? 1 : 0;
    }
  }
  tainted_ = l.tainted;
  return true;
}

bool SequenceCache::take_copies(BlockPool& pool, MovePlan& plan) {
  size_t needed = 0;
  for (const TableMoves& m : plan.tables) needed += m.copies.size();
  if (needed > pool.free_count()) return false;
  for (TableMoves& m : plan.tables) {
    const auto t = static_cast<size_t>(m.layer * shape_.n_kv_heads + m.head);
    for (TableMoves::Copy& c : m.copies) {
      BlockId& id = ids(t)[c.index];
      PF_CHECK(id == c.from, "a plan of another table");
      const bool ok = pool.allocate({&c.to, 1});
      PF_CHECK(ok, "blocks were counted wrongly");
      id = c.to;
    }
    m.blocks = ids(t);
  }
  return true;
}

void SequenceCache::apply(BlockPool& pool, const MovePlan& plan, std::vector<BlockId>& freed) {
  for (const TableMoves& m : plan.tables) apply_table(pool, m, freed);
  if (!plan.tables.empty()) tainted_ = true;
}

void SequenceCache::apply_table(BlockPool& pool, const TableMoves& m, std::vector<BlockId>& freed) {
  const auto t = static_cast<size_t>(m.layer * shape_.n_kv_heads + m.head);
  TableView& v = views_[t];
  PF_CHECK(v.len == m.len_before && m.len_after >= 0 && m.len_after <= v.len,
           "a plan of another table");
  for (const TableMoves::Copy& c : m.copies) {
    if (pool.release(c.from)) freed.push_back(c.from);
  }
  if (!m.dead.empty()) mark_dead(pool, t, m, freed);
  if (!m.dropped_blocks.empty()) {
    int64_t to = 0;
    size_t next = 0;
    for (int64_t b = 0; b < blocks_[t]; ++b) {
      if (next < m.dropped_blocks.size() && m.dropped_blocks[next] == b) {
        release(pool, ids(t)[b], freed);
        ++next;
        continue;
      }
      ids(t)[to++] = ids(t)[b];
    }
    blocks_[t] = to;
  }
  const int64_t want = blocks_for(m.len_after);
  PF_CHECK(want <= blocks_[t], "a compaction lost blocks");
  while (blocks_[t] > want) release(pool, ids(t)[--blocks_[t]], freed);
  v.len = m.len_after;
  if (partial_tail(t) && pool.owners(ids(t)[blocks_[t] - 1]) > 1) tail_shared_ = true;
}

void SequenceCache::mark_dead(BlockPool& pool, size_t t, const TableMoves& m,
                              std::vector<BlockId>& freed) {
  if (live_.empty()) {
    live_.resize(views_.size());
    dead_.assign(views_.size(), 0);
  }
  grow_live(t, views_[t].len);
  auto& bits = live_[t];
  for (const int32_t s : m.dead) {
    uint32_t& word = bits[static_cast<size_t>(s / 32)];
    const uint32_t bit = uint32_t{1} << (s % 32);
    PF_CHECK((word & bit) != 0, "a slot died twice");
    word &= ~bit;
  }
  dead_[t] += static_cast<int64_t>(m.dead.size());
  int64_t last = -1;
  for (const int32_t s : m.dead) {
    const int64_t b = s / shape_.block_size;
    if (b == last || (b + 1) * shape_.block_size > views_[t].len) continue;
    last = b;
    if (block_is_dead(bits, b, shape_.block_size)) release(pool, ids(t)[b], freed);
  }
}

void SequenceCache::check_invariants(const BlockPool& pool) const {
  int64_t held = 0;
  for (size_t t = 0; t < views_.size(); ++t) {
    const TableView& v = views_[t];
    PF_CHECK(v.start <= v.len && blocks_[t] >= blocks_for(v.len), "a table is shorter than len");
    for (int64_t b = 0; b < blocks_[t]; ++b) {
      const BlockId id = ids(t)[b];
      if (id == kNoBlock) {
        const bool windowed = b < v.start / shape_.block_size;
        PF_CHECK(windowed || (v.live != nullptr && block_is_dead(live_[t], b, shape_.block_size)),
                 "a block is missing");
        continue;
      }
      PF_CHECK(pool.owners(id) > 0, "a table holds a free block");
      ++held;
    }
  }
  PF_CHECK(held == held_, "held blocks were counted wrongly");
}

}  // namespace pagefold
