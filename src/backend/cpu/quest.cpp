#include "backend/cpu/quest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/half.h"

namespace pagefold::cpu {
namespace {

constexpr uint16_t kInfinity = 0x7f80, kMinusInfinity = 0xff80;
constexpr int64_t kBoundsTile = 16;  // blocks whose bounds are widened to float32 at a time

// The largest bfloat16 that is not above v, and the smallest that is not below.
uint16_t bf16_down(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const bool cut = (bits & 0xffff) != 0 && std::isfinite(v);
  return static_cast<uint16_t>((bits >> 16) + (cut && v < 0 ? 1 : 0));
}
uint16_t bf16_up(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const bool cut = (bits & 0xffff) != 0 && std::isfinite(v);
  return static_cast<uint16_t>((bits >> 16) + (cut && v > 0 ? 1 : 0));
}

void widen(uint16_t& lo, uint16_t& hi, float v) {
  if (v < bf16_to_f32(lo)) lo = bf16_down(v);
  if (v > bf16_to_f32(hi)) hi = bf16_up(v);
}

}  // namespace

Status PageBounds::init(const KvArena& arena, uint32_t n_blocks) {
  if (enabled()) return ok_status();
  layout_ = arena.layout();
  kv_block_bytes_ = arena.block_bytes();
  PF_TRY(pages_.init(2 * sizeof(uint16_t) * dim(), n_blocks));
  std::vector<BlockId> taken;
  for (BlockId b = 0; b < n_blocks; ++b) {
    if (arena.is_taken(b)) taken.push_back(b);
  }
  return take(taken);
}

uint64_t PageBounds::release(uint64_t reserve_bytes, uint64_t least_bytes) {
  if (!enabled()) return 0;
  const auto of_bounds = [&](uint64_t bytes) {
    return bytes / kv_block_bytes_ * pages_.block_bytes();
  };
  return pages_.release(of_bounds(reserve_bytes), of_bounds(least_bytes));
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
    uint16_t* lo = at(blocks[slot / layout_.block_size]);
    uint16_t* hi = lo + layout_.head_dim;
    std::copy_n(keys + r * ld, layout_.head_dim, key);
    k.round_to(layout_.k_dtype, key, layout_.head_dim);
    const bool first = slot % layout_.block_size == 0;
    for (int d = 0; d < layout_.head_dim; ++d) {
      if (first) {
        lo[d] = bf16_down(key[d]);
        hi[d] = bf16_up(key[d]);
      } else {
        widen(lo[d], hi[d], key[d]);
      }
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
    uint16_t* lo = at(blocks[b]);
    uint16_t* hi = lo + layout_.head_dim;
    std::fill_n(lo, dim(), kInfinity);
    std::fill_n(hi, dim(), kMinusInfinity);
    const std::byte* block = arena.base() + blocks[b] * arena.block_bytes();
    for (int strip = 0; strip < strips; ++strip, block += layout_.strip_bytes()) {
      const int lanes = static_cast<int>(
          std::clamp<int64_t>(slots - strip * kernels::kStripSlots, 0, kernels::kStripSlots));
      if (lanes == 0) break;
      k.unpack_keys(layout_, block, keys);
      for (int d = 0; d < layout_.head_dim; ++d) {
        const float* row = keys + d * kernels::kStripSlots;
        for (int lane = 0; lane < lanes; ++lane) widen(lo[d], hi[d], row[lane]);
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
  const auto width = static_cast<size_t>(2 * head_dim);
  out.bounds.resize(kBoundsTile * width);
  uint32_t tile[kBoundsTile];
  std::iota(tile, tile + kBoundsTile, 0u);
  for (int64_t i = 0; i < n_blocks;) {
    if (blocks[i] == kNoBlock) {
      out.scores[static_cast<size_t>(i++)] = -std::numeric_limits<float>::infinity();
      continue;
    }
    int n = 0;
    for (; n < kBoundsTile && i + n < n_blocks && blocks[i + n] != kNoBlock; ++n) {
      const uint16_t* from = bounds.lo(blocks[i + n]);
      float* to = out.bounds.data() + static_cast<size_t>(n) * width;
      for (size_t d = 0; d < width; ++d) to[d] = bf16_to_f32(from[d]);
    }
    k.page_scores(out.bounds.data(), tile, n, q, group, head_dim, out.scores.data() + i);
    i += n;
  }
  select_pages(out.scores, keep, first_kept, out.index);
  for (const int32_t i : out.index) out.blocks.push_back(blocks[i]);
}

}  // namespace pagefold::cpu
