#include "backend/cpu/key_reader.h"

#include <algorithm>

#include "backend/cpu/hadamard.h"
#include "backend/cpu/similar_keys.h"
#include "base/check.h"

namespace pagefold::cpu {
namespace {

constexpr int kStrip = kernels::kStripSlots;
bool is_live(const TableView& t, int64_t slot) {
  return t.live == nullptr || (t.live[slot / 32] >> (slot % 32) & 1u) != 0;
}
bool is_held(const TableView& t, int64_t slot, int block_size) {
  return slot >= t.start && t.blocks[slot / block_size] != kNoBlock && is_live(t, slot);
}

}  // namespace

const std::byte* KeyReader::address(const TableView& table, int64_t slot) const {
  const BlockId block = table.blocks[slot / layout_.block_size];
  if (block == kNoBlock) return nullptr;
  return base_ + block * layout_.block_bytes() +
         static_cast<size_t>(slot % layout_.block_size / kStrip) * layout_.strip_bytes();
}

const float* KeyReader::strip(const TableView& table, int64_t slots, int64_t slot) {
  const size_t dim = static_cast<size_t>(layout_.head_dim);
  keys_.resize(dim * kStrip);
  const std::byte* at = address(table, slot);
  if (at == nullptr) {
    std::fill(keys_.begin(), keys_.end(), 0.0f);
    return keys_.data();
  }
  // The values between two strips' keys end the hardware's prefetching.
  if (const int64_t ahead = slot + 2 * kStrip; ahead < slots) {
    if (const std::byte* next = address(table, ahead)) {
      for (size_t i = 0; i < layout_.k_strip_bytes(); i += 64) __builtin_prefetch(next + i);
    }
  }
  k_.unpack_keys(layout_, at, keys_.data());
  restore();
  const int64_t there = slots - slot;
  for (size_t d = 0; there < kStrip && d < dim; ++d) {
    std::fill(keys_.data() + d * kStrip + there, keys_.data() + (d + 1) * kStrip, 0.0f);
  }
  return keys_.data();
}

// From the store's form to the model's.
void KeyReader::restore() {
  if (stored_.hadamard) rotate_hadamard(keys_.data(), layout_.head_dim, kStrip);
  if (stored_.scale != 1.0f) {
    for (float& key : keys_) key *= stored_.scale;
  }
  if (stored_.centre == nullptr) return;
  for (size_t i = 0; i < keys_.size(); ++i) keys_[i] += stored_.centre[i / kStrip];
}

void KeyReader::read(const TableView& table, int64_t slots, float* out) {
  const int dim = layout_.head_dim;
  for (int64_t slot = 0; slot < slots; slot += kStrip) {
    const float* keys = strip(table, slots, slot);
    const int64_t n = std::min<int64_t>(kStrip, slots - slot);
    for (int64_t lane = 0; lane < n; ++lane) {
      for (int d = 0; d < dim; ++d) out[(slot + lane) * dim + d] = keys[d * kStrip + lane];
    }
  }
}

void KeyReader::score(const TableView& table, int64_t slots, kernels::StripScoreArgs a) {
  PF_CHECK(a.bands <= kernels::kMostBands && 2 * a.bands <= layout_.head_dim);
  float* const out = a.out;
  const int64_t ldo = a.ldo;
  results_.resize(static_cast<size_t>(a.group) * kStrip);
  for (int64_t slot = 0; slot < slots; slot += kStrip) {
    const int64_t n = std::min<int64_t>(kStrip, slots - slot);
    a.keys = strip(table, slots, slot);
    a.out = n == kStrip ? out + slot : results_.data();
    a.ldo = n == kStrip ? ldo : kStrip;
    k_.score_strip(a);
    for (int g = 0; n < kStrip && g < a.group; ++g)
      std::copy_n(results_.data() + g * kStrip, n, out + g * ldo + slot);
  }
}

void KeyReader::dots(const TableView& table, int64_t slots, const float* queries, int n_queries,
                     float scale, float* out, int64_t ldo) {
  results_.resize(static_cast<size_t>(n_queries) * kStrip);
  for (int64_t slot = 0; slot < slots; slot += kStrip) {
    const int64_t n = std::min<int64_t>(kStrip, slots - slot);
    const bool whole = n == kStrip;
    const float* keys = strip(table, slots, slot);
    k_.dot_strips({keys, 1, layout_.head_dim, queries, layout_.head_dim, n_queries, scale,
                   whole ? out + slot : results_.data(), whole ? ldo : kStrip});
    for (int q = 0; !whole && q < n_queries; ++q)
      std::copy_n(results_.data() + q * kStrip, n, out + q * ldo + slot);
  }
}

void KeyReader::redundancy(const TableView& table, int64_t slots, const float* queries, int window,
                           int group, float scale, float threshold, const ScoredKeys& out) {
  static thread_local SimilarKeys similar;  // its buffers are large
  const int dim = layout_.head_dim;
  if (out.similarity != nullptr) similar.begin(k_, dim, slots);
  results_.resize(static_cast<size_t>(window) * static_cast<size_t>(group) * kStrip);
  for (int64_t slot = 0; slot < slots; slot += kStrip) {
    const int64_t n = std::min<int64_t>(kStrip, slots - slot);
    const float* keys = strip(table, slots, slot);
    k_.dot_strips({keys, 1, dim, queries, dim, window * group, scale, results_.data(), kStrip});
    for (int i = 0; i < window; ++i) {
      float* most = results_.data() + int64_t{i} * group * kStrip;
      for (int g = 1; g < group; ++g) {
        const float* x = most + g * kStrip;
        for (int lane = 0; lane < kStrip; ++lane) most[lane] = std::max(most[lane], x[lane]);
      }
      std::copy_n(most, n, out.logits + i * out.stride + slot);
    }
    if (out.similarity == nullptr) continue;
    uint32_t counts = 0;
    for (int64_t lane = 0; lane < n; ++lane)
      counts |= is_held(table, slot + lane, layout_.block_size) ? 1u << lane : 0u;
    similar.add_strip(slot, keys, counts);
  }
  if (out.similarity != nullptr) similar.means(threshold, out.similarity);
}

}  // namespace pagefold::cpu
