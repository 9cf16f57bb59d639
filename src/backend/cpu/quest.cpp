#include "backend/cpu/quest.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace pagefold::cpu {
Status PageBounds::init(const kernels::KvLayout& layout, uint32_t n_blocks) {
  if (enabled()) return ok_status();
  layout_ = layout;
  PF_ASSIGN(pages_, Pages::allocate(size_t{n_blocks} * 2 * dim() * sizeof(float),
                                    /*reserve_only=*/true));
  return ok_status();
}

void PageBounds::append(const kernels::Kernels& k, const KvArena& arena, const BlockId* blocks,
                        int64_t first_slot, int rows, const float* keys, int64_t ld) {
  if (dtype_is_fp8(layout_.k_dtype) || dtype_has_scales(layout_.k_dtype)) {
    const int64_t first = first_slot / layout_.block_size;
    const int64_t last = (first_slot + rows - 1) / layout_.block_size;
    refresh(k, arena, blocks, first, last - first + 1, first_slot + rows);
    return;
  }
  constexpr int kMost = 512;
  PF_CHECK(layout_.head_dim <= kMost);
  alignas(64) float key[kMost];
  for (int r = 0; r < rows; ++r) {
    const int64_t slot = first_slot + r;
    float* lo = at(blocks[slot / layout_.block_size]);
    float* hi = lo + layout_.head_dim;
    std::copy_n(keys + r * ld, layout_.head_dim, key);
    k.round_to(layout_.k_dtype, key, layout_.head_dim);
    if (slot % layout_.block_size == 0) {
      std::copy_n(key, layout_.head_dim, lo);
      std::copy_n(key, layout_.head_dim, hi);
      continue;
    }
    for (int d = 0; d < layout_.head_dim; ++d) {
      lo[d] = std::min(lo[d], key[d]);
      hi[d] = std::max(hi[d], key[d]);
    }
  }
}

void PageBounds::refresh(const kernels::Kernels& k, const KvArena& arena, const BlockId* blocks,
                         int64_t first, int64_t count, int64_t filled) {
  constexpr int kMost = 512;
  PF_CHECK(layout_.head_dim <= kMost);
  alignas(64) float keys[kMost * kernels::kStripSlots];
  const int strips = layout_.block_size / kernels::kStripSlots;
  for (int64_t b = first; b < first + count; ++b) {
    if (blocks[b] == kNoBlock) continue;
    const int64_t slots = std::min<int64_t>(layout_.block_size, filled - b * layout_.block_size);
    if (slots <= 0) return;
    float* lo = at(blocks[b]);
    float* hi = lo + layout_.head_dim;
    std::fill_n(lo, dim(), std::numeric_limits<float>::infinity());
    std::fill_n(hi, dim(), -std::numeric_limits<float>::infinity());
    const std::byte* block = arena.base() + blocks[b] * arena.block_bytes();
    for (int strip = 0; strip < strips; ++strip, block += layout_.strip_bytes()) {
      const int lanes = static_cast<int>(
          std::clamp<int64_t>(slots - strip * kernels::kStripSlots, 0, kernels::kStripSlots));
      if (lanes == 0) break;
      k.unpack_keys(layout_, block, keys);
      for (int d = 0; d < layout_.head_dim; ++d) {
        const float* row = keys + d * kernels::kStripSlots;
        const auto [least, most] = std::minmax_element(row, row + lanes);
        lo[d] = std::min(lo[d], *least);
        hi[d] = std::max(hi[d], *most);
      }
    }
  }
}

void select_pages(std::span<const float> scores, int64_t keep, int64_t first_kept,
                  std::vector<int32_t>& order) {
  const int64_t n = static_cast<int64_t>(scores.size());
  PF_CHECK(0 < keep && keep <= n);
  order.resize(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const int64_t head = std::min(first_kept, keep - 1);
  const auto better = [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  // The best of what lies between the first ones and the last one; then the last one.
  const auto begin = order.begin() + head, end = order.end() - 1;
  const auto cut = begin + (keep - 1 - head);
  if (cut < end) std::nth_element(begin, cut, end, better);
  *cut = static_cast<int32_t>(n - 1);
  order.resize(static_cast<size_t>(keep));
  std::sort(order.begin(), order.end());
}

void select_blocks(const kernels::Kernels& k, const PageBounds& bounds, const BlockId* blocks,
                   int64_t n_blocks, int64_t keep, int64_t first_kept, const float* q, int group,
                   int head_dim, PageSelection& out) {
  out.index.clear();
  out.blocks.clear();
  if (keep >= n_blocks) return;
  out.scores.resize(static_cast<size_t>(n_blocks));
  for (int64_t i = 0; i < n_blocks;) {
    int64_t end = i;
    while (end < n_blocks && blocks[end] != kNoBlock) ++end;
    k.page_scores(bounds.data(), blocks + i, static_cast<int>(end - i), q, group, head_dim,
                  out.scores.data() + i);
    for (i = end; i < n_blocks && blocks[i] == kNoBlock; ++i)
      out.scores[static_cast<size_t>(i)] = -std::numeric_limits<float>::infinity();
  }
  select_pages(out.scores, keep, first_kept, out.index);
  for (const int32_t i : out.index) out.blocks.push_back(blocks[i]);
}

}  // namespace pagefold::cpu
