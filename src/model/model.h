// A language model as the engine sees it: token ids in, logits out, keys and values in the paged
// cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/kv_format.h"

namespace pagefold {

// What the engine must know to plan memory and steps.
struct ModelShape {
  std::string architecture;
  int n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int64_t hidden = 0, vocab_size = 0;
  int64_t context_length = 0;         // the model's own limit
  std::vector<int64_t> layer_window;  // [n_layers] sliding window in tokens, 0 = full attention
  // Rotary frequencies after any rescaling (radians a position), [rotated dims / 2], the factor of
  // rotated queries and keys (YaRN), and which dims form a pair: (i, i + rot / 2) or (2i, 2i + 1).
  std::vector<double> inv_freq;
  double rope_magnitude = 1;
  bool rope_half_layout = true;
};

// The cache of a model in a format.
inline KvShape kv_shape(const ModelShape& model, const KvFormat& format, int block_size,
                        uint32_t n_blocks) {
  KvShape kv{model.n_layers, model.n_kv_heads, model.head_dim, block_size,
             format.k,       format.v,         n_blocks,       format.group};
  kv.hadamard_keys = format.hadamard_keys;
  kv.centred_keys = format.centred_keys;
  kv.k_scale = format.k_scale;
  kv.v_scale = format.v_scale;
  return kv;
}

// One forward pass. Rows of different sequences follow each other; seqs[i].row + n_rows ==
// seqs[i+1].row.
struct StepBatch {
  std::span<const int32_t> tokens;     // [rows]
  std::span<const int64_t> positions;  // [rows] absolute positions (rotation), never slot indices
  std::span<const SeqRows> seqs;
  std::span<const int32_t> logit_rows;  // ascending rows whose logits are wanted
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  virtual const ModelShape& shape() const = 0;
  // logits: [logit_rows.size()][vocab_size], float32.
  virtual void forward(const StepBatch& batch, float* logits) = 0;
  virtual Status init(const KvShape& kv, const StepLimits& limits) = 0;
  virtual uint64_t block_bytes(const KvShape& kv) const = 0;
  virtual void blocks_freed(std::span<const BlockId> blocks) = 0;
  // The rest is for cache compression; backend.h says what each does.
  virtual Status blocks_taken(std::span<const BlockId>) { return ok_status(); }
  virtual void copy_blocks(std::span<const BlockCopy>) {}
  virtual void for_each(int64_t n, UnitFn fn) {
    for (int64_t i = 0; i < n; ++i) fn(i);
  }
  virtual void score_tables(const KeyScoreQuery&, const TableView*, ScoredKeys*) {}
  virtual void move_slots(const MovePlan&, const TableView*) {}
  virtual Status enable_page_bounds() {
    return unsupported("page bounds are not kept by this model");
  }
  virtual uint64_t page_bounds_bytes() const { return 0; }  // of one block, once enabled
  virtual uint64_t release_kv(uint64_t /*reserve_bytes*/, uint64_t /*least_bytes*/) { return 0; }
  virtual KvMemory kv_memory() const { return {}; }
  virtual uint64_t kv_saturated() const { return 0; }
  // For a pause: the bytes of blocks, one after the other, and back into other blocks. filled:
  // slots in use of each.
  virtual void save_blocks(std::span<const BlockId> /*blocks*/, std::byte* /*out*/) {}
  virtual void load_blocks(std::span<const BlockId> /*blocks*/, std::span<const int32_t> /*filled*/,
                           const std::byte* /*in*/) {}
  virtual uint64_t weight_bytes() const = 0;
  // Committed bytes of the cache arena.
  virtual uint64_t kv_resident_bytes() const { return 0; }
};

}  // namespace pagefold
