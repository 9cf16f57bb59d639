// A pool with contents and the life of a sequence in it, as an engine and a backend would run it.
// The "bytes" of a slot are one number that says whose token it holds, so that a wrong move, a
// write into a shared block or a stale table shows at once.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"
#include "kv/compression.h"
#include "kv/registry.h"

namespace pagefold::testing {

inline KvModel small_model(int layers, int heads, int kv_heads, int head_dim = 8,
                           int block_size = 16) {
  KvModel m;
  m.n_layers = layers;
  m.n_heads = heads;
  m.n_kv_heads = kv_heads;
  m.head_dim = head_dim;
  m.block_size = block_size;
  m.context_length = 1 << 20;
  for (int f = 0; f < head_dim / 2; ++f) {
    m.inv_freq.push_back(std::pow(10000.0, -2.0 * f / head_dim));
  }
  return m;
}

inline CacheShape shape_of(const KvModel& m) {
  return {m.n_layers, m.n_kv_heads, m.block_size, m.layer_window};
}

struct World {
  World(const KvModel& m, uint32_t blocks)
      : model(m),
        shape(shape_of(m)),
        pool(blocks),
        content(static_cast<size_t>(blocks) * static_cast<size_t>(m.block_size), -1) {}
  int64_t& at(BlockId block, int64_t offset) {
    return content[static_cast<size_t>(block) * static_cast<size_t>(model.block_size) +
                   static_cast<size_t>(offset)];
  }
  int64_t& slot(const BlockId* blocks, int64_t s) {
    return at(blocks[s / model.block_size], s % model.block_size);
  }
  void copy_block(BlockId from, BlockId to) {
    for (int i = 0; i < model.block_size; ++i) at(to, i) = at(from, i);
  }
  void move(const MovePlan& plan) {
    for (const TableMoves& t : plan.tables) {
      for (const auto& c : t.copies) copy_block(c.from, c.to);
      for (const SlotMove& m : t.moves) {
        ASSERT_EQ(pool.owners(t.blocks[m.to / model.block_size]), 1u)
            << "a shared block is written";
        slot(t.blocks, m.to) = slot(t.blocks, m.from);
      }
    }
  }
  KvModel model;
  CacheShape shape;
  BlockPool pool;
  std::vector<int64_t> content;
};

// Attention probabilities of query head (layer, head, g) at query_pos over n visible slots.
using RowFn = std::function<void(int layer, int head, int g, int64_t query_pos,
                                 const int32_t* positions, int64_t n, float* p)>;
// Fills the scores that a compaction asks of the backend.
using KeyFn = std::function<void(const KeyScoreQuery& q, int layer, int head,
                                 const int32_t* positions, int64_t n, const ScoredKeys& out)>;

// Random numbers that depend on their arguments alone.
inline float hashed(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
  return static_cast<float>(philox4x32(seed, a << 32 | b, c)[0] >> 8) * 0x1p-24f;
}

inline RowFn random_rows(uint64_t seed) {
  return [seed](int layer, int head, int g, int64_t q, const int32_t* pos, int64_t n, float* p) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      p[i] = hashed(seed, static_cast<uint64_t>(layer * 64 + head * 8 + g),
                    static_cast<uint64_t>(pos[i]), static_cast<uint64_t>(q));
      p[i] *= p[i] * p[i];
      sum += p[i];
    }
    for (int64_t i = 0; i < n; ++i) p[i] /= sum;
  };
}

inline KeyFn random_keys(uint64_t seed) {
  return [seed](const KeyScoreQuery& q, int layer, int head, const int32_t* pos, int64_t n,
                const ScoredKeys& out) {
    const int rows = q.kind == KeyScore::redundancy ? q.window : out.rows;
    for (int64_t i = 0; i < n; ++i) {
      const auto p = static_cast<uint64_t>(pos[i]);
      for (int r = 0; r < rows; ++r) {
        out.logits[r * out.stride + i] = hashed(seed, static_cast<uint64_t>(layer * 64 + head), p,
                                                static_cast<uint64_t>(r + 100));
      }
      if (out.similarity != nullptr) {
        out.similarity[i] = hashed(seed, static_cast<uint64_t>(layer * 64 + head), p, 7);
      }
    }
  };
}

class Life {
 public:
  Life(World& world, Compactor& compactor, KvPlan plan, int64_t n_prompt, int64_t id, RowFn rows,
       KeyFn keys, int64_t window_end = -1)
      : world_(world),
        compactor_(compactor),
        id_(id),
        rows_(std::move(rows)),
        keys_(std::move(keys)),
        cache(world.shape),
        compression(world.model, std::make_shared<const KvPlan>(std::move(plan)), n_prompt,
                    window_end < 0 ? n_prompt : window_end, 64) {}
  ~Life() { cache.free_all(world_.pool, freed_); }

  // Most `rows` rows of one step, then a compaction if one is due. Returns the rows computed.
  int64_t step(int64_t rows) {
    rows = std::min(rows, compression.rows_to_stop());
    EXPECT_TRUE(cache.reserve(world_.pool, rows));
    for (const BlockCopy& c : cache.pending_copies()) world_.copy_block(c.from, c.to);
    const int64_t first = compression.state().n_computed;
    const Observation* o = compression.begin_step(cache, rows);
    const KvModel& m = world_.model;
    for (int t = 0; t < m.n_tables(); ++t) {
      const TableView& v = cache.tables()[t];
      for (int64_t r = 0; r < rows; ++r) {
        EXPECT_EQ(world_.pool.owners(v.blocks[(v.len + r) / m.block_size]), 1u);
        world_.slot(v.blocks, v.len + r) = tag(first + r);
      }
      if (o != nullptr && o->n_rows > 0 && m.compressed(t / m.n_kv_heads)) observe(*o, t);
    }
    observed_rows += o == nullptr ? 0 : o->n_rows;
    cache.commit(world_.pool, rows, freed_);
    compression.end_step(rows);
    peak_blocks = std::max(peak_blocks, cache.held_blocks());
    compacted = false;
    if (compression.due(cache)) compact();
    return rows;
  }
  void prompt(int64_t n, int64_t chunk = 1 << 20) {
    while (n > 0) n -= step(std::min(n, chunk));
  }
  void compact() {
    const KeyScoreQuery& q = compactor_.query(compression, cache);
    const KvModel& m = world_.model;
    if (q.kind != KeyScore::none) {
      for (int t = 0; t < m.n_tables(); ++t) {
        keys_(q, t / m.n_kv_heads, t % m.n_kv_heads, compression.signals().positions(t),
              compression.signals().slots(t), compactor_.scored()[t]);
      }
    }
    MovePlan plan;
    ASSERT_TRUE(compactor_.plan(compression, cache, world_.pool, plan));
    world_.move(plan);
    compactor_.apply(compression, cache, world_.pool, plan, freed_);
    moved_slots += plan.slots_moved();
    compacted = true;
  }

  // Live slots of a table in slot order / positions ascending.
  std::vector<int32_t> slots(int table) const {
    std::vector<int32_t> out;
    const TableView& v = cache.tables()[table];
    for (int64_t s = 0; s < v.len; ++s) {
      if (v.live == nullptr || (v.live[s / 32] >> (s % 32) & 1) != 0) {
        out.push_back(static_cast<int32_t>(s));
      }
    }
    return out;
  }
  std::vector<int32_t> positions(int table) const {
    std::vector<int32_t> out;
    for (const int32_t s : slots(table)) out.push_back(compression.signals().positions(table)[s]);
    std::sort(out.begin(), out.end());
    return out;
  }
  int64_t tag(int64_t position) const { return id_ << 32 | position; }
  // Every live slot holds the token that its position names, no position twice.
  void check_contents() {
    const KvModel& m = world_.model;
    cache.check_invariants(world_.pool);
    for (int t = 0; t < m.n_tables(); ++t) {
      if (!m.compressed(t / m.n_kv_heads)) continue;
      std::set<int32_t> seen;
      for (const int32_t s : slots(t)) {
        const int32_t p = compression.signals().positions(t)[s];
        ASSERT_EQ(world_.slot(cache.tables()[t].blocks, s) & 0xffffffff, p);
        ASSERT_TRUE(seen.insert(p).second) << "position " << p << " twice";
      }
    }
  }

  World& world_;
  Compactor& compactor_;
  int64_t id_;
  RowFn rows_;
  KeyFn keys_;
  SequenceCache cache;
  SequenceCompression compression;
  std::vector<BlockId> freed_;
  int64_t peak_blocks = 0, moved_slots = 0, observed_rows = 0;
  bool compacted = false;

 private:
  void observe(const Observation& o, int t) {
    const KvModel& m = world_.model;
    const TableView& v = cache.tables()[t];
    std::vector<int32_t> seen, where;
    std::vector<float> p, mean;
    for (int r = o.first_row; r < o.first_row + o.n_rows; ++r) {
      seen.clear();
      where.clear();
      const int64_t n = v.len + r + 1;
      for (int64_t s = 0; s < n; ++s) {
        if (v.live != nullptr && (v.live[s / 32] >> (s % 32) & 1) == 0) continue;
        seen.push_back(compression.signals().positions(t)[s]);
        where.push_back(static_cast<int32_t>(s));
      }
      mean.assign(static_cast<size_t>(n), 0.0f);
      p.resize(seen.size());
      for (int g = 0; g < m.group(); ++g) {
        rows_(t / m.n_kv_heads, t % m.n_kv_heads, g, o.first_position + r, seen.data(),
              static_cast<int64_t>(seen.size()), p.data());
        for (size_t i = 0; i < seen.size(); ++i) {
          mean[static_cast<size_t>(where[i])] +=
              o.form == MassForm::squared ? p[i] * p[i] : p[i] / static_cast<float>(m.group());
        }
      }
      if (o.history != nullptr) {
        push_history_row(o.history[t], o.first_position + r, mean.data(), n,
                         static_cast<int64_t>(seen.size()));
      } else {
        for (int64_t s = 0; s < n; ++s) o.mass[t][s] += mean[static_cast<size_t>(s)];
      }
    }
  }
};

inline KvPlan plan_of(const KvModel& model, const KvOptions& words, int64_t n_prompt = 0) {
  KvLimits limits;
  limits.allow_off = limits.allow_offline = true;
  auto plan = parse_kv_options(words, {}, model, limits, n_prompt);
  EXPECT_TRUE(plan.ok()) << message_of(plan.status());
  return plan.ok() ? *plan : KvPlan{};
}

}  // namespace pagefold::testing
