// A language model whose logits are a hash of what lies in its cache blocks. It keeps (token,
// position, table) by block id and slot, written only where the tables say, so a wrong table,
// length, position or an early free gives a wrong answer.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "model/model.h"

namespace pagefold::testing {

inline uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9E3779B97F4A7C15ull + (h << 6) + (h >> 2);
  h *= 0xBF58476D1CE4E5B9ull;
  return h ^ (h >> 29);
}

class FakeModel final : public LanguageModel {
 public:
  explicit FakeModel(int64_t vocab = 64, std::vector<int64_t> windows = {0, 0}, int kv_heads = 2) {
    shape_.architecture = "fake";
    shape_.n_layers = static_cast<int>(windows.size());
    shape_.n_heads = shape_.n_kv_heads = kv_heads;
    shape_.head_dim = 8;
    shape_.hidden = 8;
    shape_.vocab_size = vocab;
    shape_.context_length = 4096;
    shape_.layer_window = std::move(windows);
  }

  const ModelShape& shape() const override { return shape_; }
  ModelShape& mutable_shape() { return shape_; }
  uint64_t block_bytes(const KvShape& kv) const override {
    return 4 * static_cast<uint64_t>(kv.block_size) * static_cast<uint64_t>(kv.head_dim);
  }
  uint64_t weight_bytes() const override { return 0; }
  Status init(const KvShape& kv, const StepLimits& limits) override {
    kv_ = kv;
    limits_ = limits;
    slots_.assign(static_cast<size_t>(kv.n_blocks) * static_cast<size_t>(kv.block_size), {});
    return ok_status();
  }

  void forward(const StepBatch& batch, float* logits) override {
    if (before_forward) before_forward(batch);
    ++steps;
    check(batch.tokens.size() == batch.positions.size());
    check(static_cast<int>(batch.tokens.size()) <= limits_.max_rows);
    check(static_cast<int>(batch.seqs.size()) <= limits_.max_seqs);
    check(static_cast<int>(batch.logit_rows.size()) <= limits_.max_logit_rows);
    std::vector<uint64_t> hashes(batch.tokens.size(), 0);
    for (const SeqRows& s : batch.seqs) run_sequence(batch, s, hashes);
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      fill_logits(hashes[static_cast<size_t>(batch.logit_rows[i])],
                  logits + i * static_cast<size_t>(shape_.vocab_size));
    }
  }

  // A block that was freed and handed out again before the model heard of it counts as taken only.
  Status blocks_taken(std::span<const BlockId> blocks) override {
    clear(blocks);
    return ok_status();
  }
  void blocks_freed(std::span<const BlockId> blocks) override { clear(blocks); }
  void save_blocks(std::span<const BlockId> blocks, std::byte* out) override {
    for (const BlockId b : blocks) {
      for (int i = 0; i < kv_.block_size; ++i) {
        const Slot& s = at(b, i);
        const int32_t words[3] = {s.token, static_cast<int32_t>(s.position), s.table};
        std::memcpy(out + 16 * i, words, sizeof words);
      }
      out += block_bytes(kv_);
    }
  }
  void load_blocks(std::span<const BlockId> blocks, std::span<const int32_t> filled,
                   const std::byte* in) override {
    for (size_t n = 0; n < blocks.size(); ++n, in += block_bytes(kv_)) {
      for (int i = 0; i < filled[n]; ++i) {
        int32_t words[3];
        std::memcpy(words, in + 16 * i, sizeof words);
        at(blocks[n], i) = {words[0], words[1], words[2]};
      }
    }
  }

  // The same logits from a list of tokens alone, without any cache.
  std::vector<float> expected_logits(std::span<const int32_t> tokens) const {
    uint64_t row = 0;
    for (int l = 0; l < shape_.n_layers; ++l) {
      for (int h = 0; h < shape_.n_kv_heads; ++h) {
        const int table = l * shape_.n_kv_heads + h;
        const int64_t window = shape_.layer_window[static_cast<size_t>(l)];
        const auto n = static_cast<int64_t>(tokens.size());
        uint64_t sum = 0;
        for (int64_t i = window > 0 ? std::max<int64_t>(0, n - window) : 0; i < n; ++i) {
          sum = mix(sum, slot_hash({tokens[static_cast<size_t>(i)], i, table}));
        }
        row = mix(row, sum);
      }
    }
    std::vector<float> out(static_cast<size_t>(shape_.vocab_size));
    fill_logits(row, out.data());
    return out;
  }
  // Greedy continuation by expected_logits; stops after an id in `stop`.
  std::vector<int32_t> expected_greedy(std::vector<int32_t> tokens, int64_t n,
                                       const std::vector<int32_t>& stop = {}) const {
    const size_t prompt = tokens.size();
    while (static_cast<int64_t>(tokens.size() - prompt) < n) {
      const std::vector<float> x = expected_logits(tokens);
      tokens.push_back(static_cast<int32_t>(std::max_element(x.begin(), x.end()) - x.begin()));
      if (std::find(stop.begin(), stop.end(), tokens.back()) != stop.end()) break;
    }
    return {tokens.begin() + static_cast<int64_t>(prompt), tokens.end()};
  }

  std::function<void(const StepBatch&)> before_forward;  // set before the engine starts
  std::function<void(float*, int64_t)> change_logits;    // likewise; a row and its size
  std::atomic<int64_t> violations{0};  // broken promises of the engine, see check()
  std::atomic<int64_t> steps{0};

 private:
  struct Slot {
    int32_t token = -1;
    int64_t position = -1;
    int table = -1;
  };
  static uint64_t slot_hash(const Slot& s) {
    return mix(mix(static_cast<uint64_t>(s.token), static_cast<uint64_t>(s.position)),
               static_cast<uint64_t>(s.table) + 1);
  }
  void check(bool ok) { violations += ok ? 0 : 1; }
  void clear(std::span<const BlockId> blocks) {
    for (const BlockId b : blocks) {
      check(b < kv_.n_blocks);
      for (int i = 0; i < kv_.block_size; ++i) at(b, i) = {};
    }
  }
  Slot& at(BlockId block, int64_t slot) {
    return slots_[static_cast<size_t>(block) * static_cast<size_t>(kv_.block_size) +
                  static_cast<size_t>(slot)];
  }
  Slot& in_table(const TableView& t, int64_t slot) {
    const BlockId block = t.blocks[slot / kv_.block_size];
    if (block >= kv_.n_blocks) {
      check(false);
      return nowhere_;
    }
    return at(block, slot % kv_.block_size);
  }

  void run_sequence(const StepBatch& batch, const SeqRows& s, std::vector<uint64_t>& hashes) {
    for (int table = 0; table < shape_.n_layers * shape_.n_kv_heads; ++table) {
      const TableView& t = s.tables[table];
      const int64_t window = shape_.layer_window[static_cast<size_t>(table / shape_.n_kv_heads)];
      for (int r = 0; r < s.n_rows; ++r) {
        Slot& slot = in_table(t, t.len + r);
        check(slot.token == -1);  // not written since its block was taken
        const auto row = static_cast<size_t>(s.row + r);
        slot = {batch.tokens[row], batch.positions[row], table};
      }
      uint64_t sum = 0;
      for (int r = 0; r < s.n_rows; ++r) {
        const int64_t end = t.len + r + 1;
        int64_t from = window > 0 ? std::max<int64_t>(0, end - window) : 0;
        check(from >= t.start);
        if (window > 0 || r == 0) {
          sum = 0;
        } else {
          from = end - 1;  // full attention: the row before, and one more
        }
        for (int64_t i = from; i < end; ++i) {
          const Slot& seen = in_table(t, i);
          check(seen.table == table);
          sum = mix(sum, slot_hash(seen));
        }
        uint64_t& row = hashes[static_cast<size_t>(s.row + r)];
        row = mix(row, sum);
      }
    }
  }

  void fill_logits(uint64_t hash, float* out) const {
    for (int64_t v = 0; v < shape_.vocab_size; ++v) {
      const uint64_t bits = mix(hash, static_cast<uint64_t>(v)) >> 40;
      out[v] = static_cast<float>(bits) * 0x1p-24f * 8.0f - 4.0f;
    }
    if (change_logits) change_logits(out, shape_.vocab_size);
  }

  ModelShape shape_;
  KvShape kv_;
  StepLimits limits_;
  std::vector<Slot> slots_;
  Slot nowhere_;
};

}  // namespace pagefold::testing
