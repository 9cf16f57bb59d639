// Append, fork, share, compact, pause, resume and free in random order against a model that knows
// nothing but lists of tokens.
#include <map>
#include <random>

#include "kv/support/world.h"

namespace pagefold {
namespace {

using namespace testing;  // NOLINT

// Streaming, h2o and random with their packings; small, so that they compact often.
const KvOptions kWords[] = {
    {{"policy", "streaming"}, {"budget", "40"}, {"interval", "4"}},
    {{"policy", "h2o"}, {"budget", "32"}},
    {{"policy", "random"},
     {"budget", "48"},
     {"interval", "8"},
     {"recent", "8"},
     {"packing", "fill"}},
    {{"policy", "random"},
     {"budget", "96"},
     {"interval", "8"},
     {"recent", "8"},
     {"packing", "block"}},
    {{"policy", "snapkv-d"},
     {"budget", "64"},
     {"interval", "8"},
     {"recent", "8"},
     {"packing", "off"}},
    {{"policy", "random"},
     {"budget", "48"},
     {"interval", "8"},
     {"recent", "8"},
     {"alloc", "adaptive"}},
    {{"policy", "kvcompress"}, {"budget", "96"}, {"interval", "8"}, {"recent", "8"}},
    {{"policy", "scissorhands"}, {"budget", "48"}, {"window", "16"}, {"alloc", "pyramid"}},
};

struct Sequence {
  std::unique_ptr<Life> life;
  KvOptions words;
  int64_t n_prompt = 0;
  // The model: tokens of each table; what was evicted is gone.
  std::vector<std::vector<int64_t>> tokens;
  // While paused.
  bool paused = false;
  CacheLengths lengths;
  std::string signals;
  std::map<std::pair<int, int64_t>, int64_t> bytes;  // (table, slot) -> content
};

class RandomOps {
 public:
  explicit RandomOps(uint32_t seed)
      : rng_(seed), world_(small_model(2, 4, 2), 260), compactor_(world_.model) {}

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      const int op = pick(100);
      if (sequences_.size() < 2 || (op < 6 && sequences_.size() < 6)) {
        create();
      } else {
        Sequence& s = sequences_[static_cast<size_t>(pick(static_cast<int>(sequences_.size())))];
        if (s.paused) {
          resume(s);
        } else if (op < 78) {
          append(s);
        } else if (op < 84) {
          fork(s);
        } else if (op < 90) {
          pause(s);
        } else if (op < 95) {
          share(s);
        } else {
          end(static_cast<size_t>(&s - sequences_.data()));
        }
      }
      check();
    }
    while (!sequences_.empty()) end(0);
    EXPECT_EQ(world_.pool.free_count(), world_.pool.total());
    world_.pool.check_invariants();
    EXPECT_GT(compactions_, steps / 50);
    EXPECT_GT(copies_, 10) << "no shared block was ever compacted";
    EXPECT_GT(forks_, 10);
    EXPECT_GT(adopted_, 10);
    EXPECT_GT(resumed_, 10);
  }

 private:
  int pick(int n) { return static_cast<int>(rng_() % static_cast<unsigned>(n)); }

  Sequence make(const KvOptions& words, int64_t n_prompt) {
    Sequence s;
    s.words = words;
    s.n_prompt = n_prompt;
    s.life = std::make_unique<Life>(world_, compactor_, plan_of(world_.model, words, n_prompt),
                                    n_prompt, next_id_++, random_rows(rng_()), random_keys(rng_()));
    s.tokens.resize(static_cast<size_t>(world_.model.n_tables()));
    return s;
  }
  void create() {
    sequences_.push_back(make(kWords[pick(static_cast<int>(std::size(kWords)))], 1 + pick(90)));
  }

  void append(Sequence& s) {
    Life& life = *s.life;
    const ScheduleState& state = life.compression.state();
    const bool decode = state.n_computed >= state.n_prompt;
    const int64_t rows =
        std::min<int64_t>(decode ? 1 : 1 + pick(40), life.compression.rows_to_stop());
    // Room for the rows and for the copies of a compaction.
    const int64_t needed = life.cache.blocks_needed(rows) + life.cache.held_blocks();
    if (needed > world_.pool.free_count()) {
      end(0);
      return;
    }
    const int64_t first = state.n_computed;
    const int64_t copied = life.compression.counts().copied_blocks;
    life.step(rows);
    for (auto& table : s.tokens) {
      for (int64_t r = 0; r < rows; ++r) table.push_back(life.tag(first + r));
    }
    if (!life.compacted) return;
    ++compactions_;
    copies_ += life.compression.counts().copied_blocks - copied;
    EXPECT_TRUE(life.cache.tainted() || life.compression.counts().evicted_slots == 0);
    // The model keeps the tokens whose positions were chosen.
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      const auto kept = life.positions(static_cast<int>(t));
      std::vector<int64_t> left;
      for (const int64_t token : s.tokens[t]) {
        if (std::binary_search(kept.begin(), kept.end(),
                               static_cast<int32_t>(token & 0xffffffff))) {
          left.push_back(token);
        }
      }
      EXPECT_EQ(left.size(), kept.size()) << "a position appeared from nowhere";
      s.tokens[t] = left;
    }
  }

  void fork(Sequence& parent) {
    if (sequences_.size() >= 6) return;
    Sequence child = make(parent.words, parent.n_prompt);
    parent.life->cache.fork(world_.pool, child.life->cache);
    ASSERT_TRUE(child.life->compression.restore(parent.life->compression.save()).ok());
    child.tokens = parent.tokens;
    ++forks_;
    sequences_.push_back(std::move(child));
  }

  // A new sequence takes the first full blocks of an untainted one, as a prefix cache would.
  void share(Sequence& from) {
    const SequenceCache& cache = from.life->cache;
    const int bs = world_.model.block_size;
    const int64_t blocks = cache.table(0, 0).len / bs;
    if (cache.tainted() || blocks == 0 || sequences_.size() >= 6) return;
    Sequence s = make(kWords[pick(3)], blocks * bs + 1 + pick(30));
    for (int64_t b = 0; b < blocks; ++b) {
      std::vector<BlockId> group;
      for (int t = 0; t < world_.model.n_tables(); ++t) {
        group.push_back(cache.tables()[t].blocks[b]);
      }
      s.life->cache.adopt(world_.pool, group.data());
    }
    s.life->compression.adopt(s.life->cache, blocks * bs);
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      const auto& tokens = from.tokens[t];
      s.tokens[t].assign(tokens.begin(), tokens.begin() + blocks * bs);
    }
    ++adopted_;
    sequences_.push_back(std::move(s));
  }

  void pause(Sequence& s) {
    SequenceCache& cache = s.life->cache;
    s.lengths = cache.lengths();
    s.signals = s.life->compression.save();
    s.bytes.clear();
    for (int t = 0; t < world_.model.n_tables(); ++t) {
      for (const int32_t slot : s.life->slots(t)) {
        s.bytes[{t, slot}] = world_.slot(cache.tables()[t].blocks, slot);
      }
    }
    cache.free_all(world_.pool, s.life->freed_);
    EXPECT_EQ(cache.held_blocks(), 0);
    s.paused = true;
  }
  void resume(Sequence& s) {
    Sequence fresh = make(s.words, s.n_prompt);
    if (!fresh.life->cache.restore(world_.pool, s.lengths)) return;
    ASSERT_TRUE(fresh.life->compression.restore(s.signals).ok());
    EXPECT_EQ(fresh.life->compression.save(), s.signals);
    for (const auto& [where, content] : s.bytes) {
      world_.slot(fresh.life->cache.tables()[where.first].blocks, where.second) = content;
    }
    fresh.tokens = s.tokens;
    ++resumed_;
    s = std::move(fresh);
  }
  void end(size_t i) { sequences_.erase(sequences_.begin() + static_cast<long>(i)); }

  void check() {
    std::map<BlockId, uint32_t> owners;
    for (const Sequence& s : sequences_) {
      if (s.paused) continue;
      const SequenceCache& cache = s.life->cache;
      cache.check_invariants(world_.pool);
      for (int t = 0; t < world_.model.n_tables(); ++t) {
        const TableView& v = cache.tables()[t];
        std::vector<int64_t> held;
        for (const int32_t slot : s.life->slots(t)) {
          held.push_back(world_.slot(v.blocks, slot));
          EXPECT_EQ(held.back() & 0xffffffff, s.life->compression.signals().positions(t)[slot]);
        }
        std::vector<int64_t> want = s.tokens[static_cast<size_t>(t)];
        if (s.life->compression.plan().packing == Packing::fill) {
          std::sort(held.begin(), held.end());
          std::sort(want.begin(), want.end());
        }
        ASSERT_EQ(held, want);
        const int64_t blocks = (v.len + world_.model.block_size - 1) / world_.model.block_size;
        for (int64_t b = 0; b < blocks; ++b) {
          if (v.blocks[b] != kNoBlock) ++owners[v.blocks[b]];
        }
      }
    }
    // Every block has as many owners as tables name it, and nobody else holds one.
    EXPECT_EQ(owners.size(), world_.pool.used_count());
    for (const auto& [block, n] : owners) EXPECT_EQ(world_.pool.owners(block), n);
  }

  std::mt19937 rng_;
  World world_;
  Compactor compactor_;
  std::vector<Sequence> sequences_;
  int64_t next_id_ = 1;
  int64_t compactions_ = 0, copies_ = 0, forks_ = 0, adopted_ = 0, resumed_ = 0;
};

TEST(RandomOps, TenThousandStepsMatchListsOfTokens) { RandomOps(1).run(10000); }

}  // namespace
}  // namespace pagefold
