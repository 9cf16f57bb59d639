#include "kv/move_layout.h"

#include <algorithm>

#include "base/check.h"

namespace pagefold {
namespace {

// Kept slots that lie where they belong: kept[i] - i never falls.
size_t settled(const std::vector<int32_t>& kept) {
  size_t low = 0, high = kept.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (kept[middle] == static_cast<int32_t>(middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Left-pack: every kept slot moves to its rank; ascending, so a move never reads what one wrote.
void pack_in_order(const std::vector<int32_t>& kept, TableMoves& out) {
  const size_t first = settled(kept);
  out.moves.resize(kept.size() - first);
  for (size_t i = first; i < kept.size(); ++i) {
    out.moves[i - first] = {kept[i], static_cast<int32_t>(i)};
  }
}

// Slots beyond the new end fill the holes before it, both ascending: the fewest moves.
void fill_holes(const std::vector<int32_t>& kept, TableMoves& out) {
  const auto end = static_cast<int32_t>(kept.size());
  auto source = std::lower_bound(kept.begin(), kept.end(), end);
  auto expected = static_cast<int32_t>(settled(kept));
  for (auto it = kept.begin() + expected; source != kept.end(); ++expected) {
    if (it != kept.end() && *it == expected) {
      ++it;
      continue;
    }
    out.moves.push_back({*source++, expected});
  }
}

void drop_blocks(const std::vector<int32_t>& kept, int64_t len, int block_size, TableMoves& out) {
  size_t next = 0;
  for (int64_t begin = 0; begin < len; begin += block_size) {
    const int64_t end = std::min<int64_t>(len, begin + block_size);
    if (next < kept.size() && kept[next] == begin) {
      next += static_cast<size_t>(end - begin);
      PF_CHECK(next <= kept.size() && kept[next - 1] == end - 1,
               "packing block keeps whole blocks");
    } else {
      out.dropped_blocks.push_back(static_cast<int32_t>(begin / block_size));
    }
  }
}

void mark_rest_dead(const std::vector<int32_t>& kept, int64_t len, const uint32_t* live,
                    TableMoves& out) {
  size_t next = 0;
  for (int32_t s = 0; s < len; ++s) {
    if (next < kept.size() && kept[next] == s) {
      ++next;
    } else if (live == nullptr || (live[s / 32] >> (s % 32) & 1) != 0) {
      out.dead.push_back(s);
    }
  }
}

}  // namespace

void lay_out_table(Packing packing, const std::vector<int32_t>& kept, int64_t len, int block_size,
                   const uint32_t* live, TableMoves& out) {
  out.moves.clear();
  out.copies.clear();
  out.dropped_blocks.clear();
  out.dead.clear();
  out.blocks = nullptr;
  out.len_before = len;
  out.len_after = packing == Packing::off ? len : static_cast<int64_t>(kept.size());
  if (packing == Packing::off) {
    mark_rest_dead(kept, len, live, out);
  } else if (out.len_after != len) {
    if (packing == Packing::order) pack_in_order(kept, out);
    if (packing == Packing::fill) fill_holes(kept, out);
    if (packing == Packing::block) drop_blocks(kept, len, block_size, out);
  }
}

void lay_out_moves(Packing packing, const KvModel& model, const SequenceCache& cache,
                   const BlockPool& pool, const std::vector<std::vector<int32_t>>& kept,
                   MovePlan& out) {
  size_t used = 0;
  for (int t = 0; t < model.n_tables(); ++t) {
    const int layer = t / model.n_kv_heads;
    if (!model.compressed(layer)) continue;
    if (used == out.tables.size()) out.tables.emplace_back();
    TableMoves& m = out.tables[used];
    const TableView& v = cache.tables()[t];
    m.layer = layer;
    m.head = t % model.n_kv_heads;
    lay_out_table(packing, kept[static_cast<size_t>(t)], v.len, model.block_size, v.live, m);
    if (m.empty()) continue;
    int32_t last = -1;
    for (const SlotMove& move : m.moves) {
      const int32_t block = move.to / model.block_size;
      if (block == last) continue;
      last = block;
      if (pool.owners(v.blocks[block]) > 1) m.copies.push_back({block, v.blocks[block], kNoBlock});
    }
    ++used;
  }
  out.tables.resize(used);
}

}  // namespace pagefold
