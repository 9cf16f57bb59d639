#include "kv/prefix.h"

#include <algorithm>

#include "base/check.h"

namespace pagefold {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood).
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

PrefixIndex::PrefixIndex(const CacheShape& shape, BlockPool& pool, Limits limits, uint64_t seed,
                         uint64_t hash_mask)
    : shape_(shape), pool_(pool), limits_(limits), seed_(seed), hash_mask_(hash_mask) {}

PrefixIndex::~PrefixIndex() { PF_CHECK(n_entries_ == 0, "the prefix index ended with blocks"); }

uint64_t PrefixIndex::hash_of(uint64_t parent_hash, std::string_view salt,
                              std::span<const int32_t> tokens) const {
  uint64_t h = mixed(parent_hash ^ seed_);
  for (const char c : salt) h = mixed(h ^ static_cast<unsigned char>(c));
  for (const int32_t token : tokens) h = mixed(h ^ static_cast<uint32_t>(token));
  return h & hash_mask_;
}

uint32_t PrefixIndex::child(uint32_t parent, uint64_t hash, std::string_view salt,
                            std::span<const int32_t> tokens) const {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Entry& e = entries_[it->second];
    if (e.parent == parent && e.salt == salt &&
        std::equal(tokens.begin(), tokens.end(), tokens_of(it->second).begin())) {
      return it->second;
    }
  }
  return kNone;
}

bool PrefixIndex::windows_present(const Hit& hit, int64_t blocks) const {
  for (size_t t = 0; t < n_tables(); ++t) {
    const int64_t window = shape_.layer_window[t / static_cast<size_t>(shape_.n_kv_heads)];
    if (window <= 0) continue;
    const int64_t first = std::max<int64_t>(0, blocks * shape_.block_size - window);
    for (int64_t b = blocks; b-- > first / shape_.block_size;) {
      if (hit.groups[static_cast<size_t>(b)][t] == kNoBlock) return false;
    }
  }
  return true;
}

PrefixIndex::Hit PrefixIndex::find(std::string_view salt, std::span<const int32_t> tokens,
                                   int64_t most_blocks) const {
  Hit hit;
  if (n_entries_ == 0) return hit;
  const int64_t most = std::min(most_blocks, static_cast<int64_t>(tokens.size() / block_tokens()));
  std::vector<uint32_t> chain;
  uint32_t at = kNone;
  uint64_t hash = 0;
  for (int64_t b = 0; b < most; ++b) {
    const auto part = tokens.subspan(static_cast<size_t>(b) * block_tokens(), block_tokens());
    const std::string_view root_salt = b == 0 ? salt : std::string_view{};
    hash = hash_of(hash, root_salt, part);
    at = child(at, hash, root_salt, part);
    if (at == kNone) break;
    chain.push_back(at);
    hit.groups.push_back(group(at));
  }
  auto blocks = static_cast<int64_t>(chain.size());
  if (!shape_.layer_window.empty()) {
    while (blocks > 0 && !windows_present(hit, blocks)) --blocks;
  }
  chain.resize(static_cast<size_t>(blocks));
  hit.groups.resize(chain.size());
  if (blocks > 0) hit.cursor = {chain.back(), entries_[chain.back()].generation, blocks};
  return hit;
}

bool PrefixIndex::valid(const Cursor& c) const {
  return c.blocks > 0 && entries_[c.slot].live && entries_[c.slot].generation == c.generation;
}

void PrefixIndex::hold_blocks(uint32_t slot, const SequenceCache& cache, int64_t block) {
  for (size_t t = 0; t < n_tables(); ++t) {
    BlockId& held = group(slot)[t];
    const TableView& view = cache.tables()[t];
    if (held != kNoBlock || block < view.start / shape_.block_size) continue;
    const BlockId id = view.blocks[block];
    if (id == kNoBlock || pool_.is_held(id)) continue;
    pool_.hold(id);
    held = id;
  }
}

void PrefixIndex::publish(std::string_view salt, std::span<const int32_t> tokens,
                          const SequenceCache& cache, Time now, Cursor& cursor,
                          std::vector<BlockId>& freed) {
  if (!accepts()) return;
  const auto full = static_cast<int64_t>(tokens.size() / block_tokens());
  if (full == cursor.blocks) return;
  // When the entry before was removed meanwhile, the chain is made anew from its root.
  Cursor at = valid(cursor) ? cursor : Cursor{};
  uint64_t hash = at.blocks > 0 ? entries_[at.slot].hash : 0;
  bool touched = false;
  while (at.blocks < full) {
    const auto part =
        tokens.subspan(static_cast<size_t>(at.blocks) * block_tokens(), block_tokens());
    const std::string_view root_salt = at.blocks == 0 ? salt : std::string_view{};
    hash = hash_of(hash, root_salt, part);
    uint32_t next = child(at.slot, hash, root_salt, part);
    if (next == kNone) {
      // First, so that making room takes whatever else there is.
      if (!touched) touch_chain(at.slot, now);
      touched = true;
      if (!make_room(at.slot, freed)) break;
      next = insert(at.slot, hash, root_salt, part, now);
      ++counts_.published;
    }
    hold_blocks(next, cache, at.blocks);
    at = {next, entries_[next].generation, at.blocks + 1};
  }
  if (!touched) touch_chain(at.slot, now);
  cursor = at;
}

void PrefixIndex::touch(const Cursor& cursor, Time now) {
  if (valid(cursor)) touch_chain(cursor.slot, now);
}

void PrefixIndex::touch_chain(uint32_t slot, Time now) {
  for (uint32_t s = slot; s != kNone; s = entries_[s].parent) {
    entries_[s].used = now;
    unlink(s);
    link_before(s, kNone);
  }
}

uint32_t PrefixIndex::insert(uint32_t parent, uint64_t hash, std::string_view salt,
                             std::span<const int32_t> tokens, Time now) {
  if (unused_.empty()) {
    unused_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
    blocks_.resize(blocks_.size() + n_tables());
    tokens_.resize(tokens_.size() + block_tokens());
  }
  const uint32_t slot = unused_.back();
  unused_.pop_back();
  Entry& e = entries_[slot];
  e.hash = hash;
  e.parent = parent;
  e.children = 0;
  e.live = true;
  e.used = now;
  e.salt = salt;
  std::fill_n(group(slot), n_tables(), kNoBlock);
  std::copy(tokens.begin(), tokens.end(),
            tokens_.begin() + static_cast<int64_t>(slot * block_tokens()));
  if (parent != kNone) ++entries_[parent].children;
  by_hash_.emplace(hash, slot);
  link_before(slot, parent);
  ++n_entries_;
  return slot;
}

// keep: the entry that gets a child; it and what it hangs below are the newest.
bool PrefixIndex::make_room(uint32_t keep, std::vector<BlockId>& freed) {
  while (n_entries_ >= limits_.max_entries) {
    if (oldest_ == keep || oldest_ == kNone) return false;
    remove(oldest_, freed);
    ++counts_.reclaimed;
  }
  return true;
}

void PrefixIndex::remove(uint32_t slot, std::vector<BlockId>& freed) {
  Entry& e = entries_[slot];
  PF_CHECK(e.live && e.children == 0, "a chain is taken apart from its end");
  for (size_t t = 0; t < n_tables(); ++t) {
    const BlockId id = group(slot)[t];
    if (id != kNoBlock && pool_.unhold(id)) freed.push_back(id);
  }
  auto [it, end] = by_hash_.equal_range(e.hash);
  while (it->second != slot) ++it;
  by_hash_.erase(it);
  unlink(slot);
  if (e.parent != kNone) --entries_[e.parent].children;
  e.live = false;
  ++e.generation;
  e.salt.clear();
  unused_.push_back(slot);
  --n_entries_;
}

void PrefixIndex::unlink(uint32_t slot) {
  Entry& e = entries_[slot];
  (e.older != kNone ? entries_[e.older].newer : oldest_) = e.newer;
  (e.newer != kNone ? entries_[e.newer].older : newest_) = e.older;
  e.older = e.newer = kNone;
}

// Right before `newer` in the order of use; kNone: the newest of all.
void PrefixIndex::link_before(uint32_t slot, uint32_t newer) {
  Entry& e = entries_[slot];
  e.newer = newer;
  e.older = newer != kNone ? entries_[newer].older : newest_;
  (e.older != kNone ? entries_[e.older].newer : oldest_) = slot;
  (newer != kNone ? entries_[newer].older : newest_) = slot;
}

int64_t PrefixIndex::sole_blocks(uint32_t slot) const {
  int64_t n = 0;
  for (size_t t = 0; t < n_tables(); ++t) {
    const BlockId id = group(slot)[t];
    n += id != kNoBlock && pool_.owners(id) == 1 ? 1 : 0;
  }
  return n;
}

bool PrefixIndex::in_use(uint32_t slot) const {
  for (size_t t = 0; t < n_tables(); ++t) {
    const BlockId id = group(slot)[t];
    if (id != kNoBlock && pool_.owners(id) > 1) return true;
  }
  return false;
}

bool PrefixIndex::reclaim(int64_t wanted, std::vector<BlockId>& freed) {
  const auto enough = [&] { return pool_.free_count() >= wanted; };
  if (enough()) return true;
  if (int64_t{pool_.free_count()} + pool_.idle_count() < wanted) return false;
  // Children are older than their parents, so they are met first.
  for (uint32_t s = oldest_; s != kNone && !enough();) {
    const uint32_t next = entries_[s].newer;
    if (entries_[s].children == 0 && sole_blocks(s) > 0) {
      remove(s, freed);
      ++counts_.reclaimed;
    }
    s = next;
  }
  while (!enough() && drop_oldest(freed)) {
  }
  return enough();
}

bool PrefixIndex::drop_oldest(std::vector<BlockId>& freed) {
  if (oldest_ == kNone) return false;
  remove(oldest_, freed);
  ++counts_.reclaimed;
  return true;
}

void PrefixIndex::expire(Time now, std::vector<BlockId>& freed) {
  if (limits_.time_to_live.count() <= 0) return;
  while (oldest_ != kNone && entries_[oldest_].used + limits_.time_to_live <= now) {
    if (in_use(oldest_)) {
      touch_chain(oldest_, now);
      continue;
    }
    remove(oldest_, freed);
    ++counts_.expired;
  }
}

PrefixIndex::Time PrefixIndex::next_expiry() const {
  if (oldest_ == kNone || limits_.time_to_live.count() <= 0) return Time::max();
  return entries_[oldest_].used + limits_.time_to_live;
}

void PrefixIndex::clear(std::vector<BlockId>& freed) {
  while (oldest_ != kNone) remove(oldest_, freed);
}

int64_t PrefixIndex::shared_blocks(const Hit& hit) const {
  int64_t n = 0;
  for (size_t b = 0; b < hit.groups.size(); ++b) {
    for (size_t t = 0; t < n_tables(); ++t) {
      const BlockId id = hit.groups[b][t];
      n += id != kNoBlock && pool_.owners(id) > 1 ? 1 : 0;
    }
  }
  return n;
}

void PrefixIndex::check_invariants() const {
  int64_t n = 0;
  std::vector<uint32_t> children(entries_.size(), 0);
  std::vector<bool> met(entries_.size(), false);
  for (uint32_t s = oldest_; s != kNone; s = entries_[s].newer, ++n) {
    const Entry& e = entries_[s];
    PF_CHECK(e.live && !met[s], "the order of use is broken");
    met[s] = true;
    if (e.newer != kNone) {
      PF_CHECK(entries_[e.newer].used >= e.used, "an older entry was used later");
    }
    if (e.parent != kNone) {
      PF_CHECK(entries_[e.parent].live && !met[e.parent], "an entry is older than its child");
      ++children[e.parent];
    }
    for (size_t t = 0; t < n_tables(); ++t) {
      const BlockId id = group(s)[t];
      PF_CHECK(id == kNoBlock || pool_.is_held(id), "a block of the index is not held");
    }
  }
  PF_CHECK(n == n_entries_ && by_hash_.size() == static_cast<size_t>(n), "entries are lost");
  for (size_t s = 0; s < entries_.size(); ++s) {
    PF_CHECK(!entries_[s].live || entries_[s].children == children[s], "children are miscounted");
  }
}

}  // namespace pagefold
