#include "cli/reclaim.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "backend/backend.h"
#include "base/json.h"
#include "base/random.h"
#include "base/system.h"
#include "base/threads.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "kv/cache.h"
#include "kv/move_layout.h"
#include "kv/select.h"

namespace pagefold {
namespace {

constexpr const char* kPackings[] = {"off", "block", "fill", "order"};
constexpr const char* kSurvivors[] = {"clustered", "random", "scattered"};
constexpr int64_t kStepRows = 512;  // the cache grows in steps of this many tokens
constexpr int64_t kRunLength = 160;

Packing packing_of(const std::string& name) {
  if (name == "off") return Packing::off;
  if (name == "block") return Packing::block;
  return name == "fill" ? Packing::fill : Packing::order;
}

// The types of the cache; there is no model to follow under auto.
Result<KvFormat> format_of(const ReclaimCommand& c) {
  return resolve_kv_format(c.kv, DType::bf16, {});
}

// A cache of one sequence in real memory. With the layout `shared` a block of the pool holds the
// same tokens of all KV heads of a layer: head h of pool block b is the arena's block b * heads +
// h.
class Arena {
 public:
  static Result<std::unique_ptr<Arena>> fill(const ReclaimCommand& c);
  ~Arena() { cache_.free_all(pool_, freed_); }

  int heads() const { return heads_; }  // of a pool block
  SequenceCache& cache() { return cache_; }
  Backend& backend() { return *backend_; }
  void apply(const MovePlan& tables, const MovePlan& moves);

 private:
  Arena(const ReclaimCommand& c, uint32_t n_blocks, int heads)
      : heads_(heads),
        shape_{c.layers, c.kv_heads / heads, c.block_size,
               std::vector<int64_t>(static_cast<size_t>(c.layers), 0)},
        pool_(n_blocks),
        cache_(shape_, c.tokens) {}
  std::vector<BlockId> arena_blocks(std::span<const BlockId> blocks) const;

  const int heads_;
  const CacheShape shape_;
  BlockPool pool_;
  std::unique_ptr<Backend> backend_;
  std::vector<BlockId> freed_;
  SequenceCache cache_;
};

Result<std::unique_ptr<Arena>> Arena::fill(const ReclaimCommand& c) {
  const int heads = c.layout == "shared" ? c.kv_heads : 1;
  const int64_t a_table = (c.tokens + c.block_size - 1) / c.block_size;
  const int64_t tables = int64_t{c.layers} * c.kv_heads;
  PF_ASSIGN(const KvFormat format, format_of(c));
  const double bytes = static_cast<double>(format.block_bytes(c.head_dim, c.block_size)) *
                       static_cast<double>(a_table * tables);
  const uint64_t available = available_memory();
  if (a_table * tables >= kNoBlock ||
      (available > 0 && bytes > 0.8 * static_cast<double>(available))) {
    return bad_input(
        "reclaim: {} of KV cache are too much for this machine ({} available); take fewer "
        "--tokens, --layers or --kv-heads",
        human_bytes(bytes), human_bytes(static_cast<double>(available)));
  }
  const auto blocks = static_cast<uint32_t>(a_table * tables / heads);
  std::unique_ptr<Arena> a(new Arena(c, blocks, heads));
  CpuBackendOptions options;
  options.threads = usable_cores();
  PF_ASSIGN(a->backend_, make_cpu_backend(options));
  PF_TRY(a->backend_->init_kv({c.layers, c.kv_heads, c.head_dim, c.block_size, format.k, format.v,
                               blocks * static_cast<uint32_t>(heads), format.group}));
  for (int64_t at = 0; at < c.tokens; at += kStepRows) {
    const int64_t rows = std::min(kStepRows, c.tokens - at);
    if (!a->cache_.reserve(a->pool_, rows)) return exhausted("reclaim: the pool is too small");
    a->cache_.commit(a->pool_, rows, a->freed_);
  }
  std::vector<BlockId> all(blocks);
  std::iota(all.begin(), all.end(), 0u);
  PF_TRY(a->backend_->blocks_taken(a->arena_blocks(all)));
  return a;
}

std::vector<BlockId> Arena::arena_blocks(std::span<const BlockId> blocks) const {
  std::vector<BlockId> out;
  for (const BlockId b : blocks) {
    for (int h = 0; h < heads_; ++h)
      out.push_back(b * static_cast<BlockId>(heads_) + static_cast<BlockId>(h));
  }
  return out;
}

// tables: what happens to the pool's tables; moves: what happens to the slots of each head.
void Arena::apply(const MovePlan& tables, const MovePlan& moves) {
  MovePlan plan = moves;
  std::vector<std::vector<BlockId>> ids(plan.tables.size());
  for (size_t i = 0; i < plan.tables.size(); ++i) {
    TableMoves& m = plan.tables[i];
    const TableView& v = cache_.table(m.layer, m.head / heads_);
    const int64_t n = (v.len + shape_.block_size - 1) / shape_.block_size;
    for (int64_t b = 0; b < n; ++b)
      ids[i].push_back(v.blocks[b] * static_cast<BlockId>(heads_) +
                       static_cast<BlockId>(m.head % heads_));
    m.blocks = ids[i].data();
  }
  backend_->move_slots(plan, nullptr, shape_.n_kv_heads * heads_);
  std::vector<BlockId> freed;
  cache_.apply(pool_, tables, freed);
  backend_->blocks_freed(arena_blocks(freed));
}

// Whole blocks that all heads of the table keep: those with the most survivors.
std::vector<int32_t> whole_blocks(std::span<const std::vector<int32_t>> heads, int64_t tokens,
                                  int64_t kept, int block_size) {
  std::vector<float> score(static_cast<size_t>(tokens), 0.0f);
  for (const auto& survivors : heads) {
    for (const int32_t s : survivors) score[static_cast<size_t>(s)] += 1;
  }
  const std::vector<uint8_t> flags(score.size(), kSlotEvictable);
  std::vector<int32_t> out;
  pick_blocks(score.data(), flags.data(), tokens, kept, block_size, out);
  return out;
}

// What the pool's table does when its heads do `heads`: a slot is dead, or the table shorter, only
// when that holds for all of them.
TableMoves join_heads(std::span<const TableMoves> heads, int layer, int table) {
  TableMoves out = heads[0];
  out.layer = layer;
  out.head = table;
  out.moves.clear();
  for (const TableMoves& m : heads.subspan(1)) {
    out.len_after = std::max(out.len_after, m.len_after);
    std::vector<int32_t> both;
    std::set_intersection(out.dead.begin(), out.dead.end(), m.dead.begin(), m.dead.end(),
                          std::back_inserter(both));
    out.dead = std::move(both);
  }
  return out;
}

void print_table(const ReclaimCommand& c, const KvFormat& format,
                 const std::vector<ReclaimRow>& rows) {
  print_text(
      stdout,
      fmt::format("{} tokens in {} layer{} x {} KV head{}, head_dim {}, {}, blocks "
                  "of {} slots{}; {:.4g} % kept\n\n",
                  grouped(static_cast<uint64_t>(c.tokens)), c.layers, c.layers == 1 ? "" : "s",
                  c.kv_heads, c.kv_heads == 1 ? "" : "s", c.head_dim, format.name(), c.block_size,
                  c.layout == "shared" ? " that all KV heads of a layer share" : "", 100 * c.keep));
  print_text(stdout, fmt::format("{:<8} {:<10} {:>8} {:>8} {:>8} {:>8} {:>12} {:>10} {:>9}\n",
                                 "packing", "survivors", "kept", "before", "after", "freed",
                                 "released", "moved", "ms"));
  for (const ReclaimRow& r : rows) {
    print_text(
        stdout,
        fmt::format("{:<8} {:<10} {:>8} {:>8} {:>8} {:>8} {:>12} {:>10} {:>9.3f}\n", r.packing,
                    r.survivors, r.kept, r.blocks_before, r.blocks_after, r.blocks_freed,
                    human_bytes(static_cast<double>(r.bytes_released)), r.tokens_moved, r.ms));
  }
  print_text(stdout,
             "\nkept: slots of a table. before, after, freed: blocks of all tables. off only marks "
             "tokens; block\nchose whole blocks, those with the most survivors, so it keeps other "
             "tokens than the rest.\n");
}

}  // namespace

std::vector<int32_t> pick_survivors(const std::string& kind, int64_t tokens, int64_t kept,
                                    uint64_t seed) {
  std::vector<int32_t> out;
  uint64_t draws = 0;
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(uniform01(seed, draws++) * static_cast<double>(n));
  };
  if (kind == "scattered") {
    for (int64_t i = 0; i < kept; ++i) out.push_back(static_cast<int32_t>(i * tokens / kept));
  } else if (kind == "random") {  // selection sampling: each subset is equally likely
    for (int64_t s = 0, left = kept; s < tokens; ++s) {
      if (below(tokens - s) < left) {
        out.push_back(static_cast<int32_t>(s));
        --left;
      }
    }
  } else {
    const int64_t runs = std::max<int64_t>(1, kept / kRunLength);
    for (int64_t r = 0; r < runs; ++r) {
      // Shares of what goes and of what stays, so that no rounding makes a run longer than its
      // part.
      const int64_t gone = tokens - kept, begin = r * kept / runs + r * gone / runs;
      const int64_t n = (r + 1) * kept / runs - r * kept / runs;
      const int64_t first = begin + below((r + 1) * gone / runs - r * gone / runs + 1);
      for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>(first + i));
    }
  }
  return out;
}

Result<ReclaimRow> measure_reclaim(const ReclaimCommand& c, const std::string& packing,
                                   const std::string& survivors) {
  PF_ASSIGN(const auto arena, Arena::fill(c));
  const int heads = arena->heads();
  const int64_t kept =
      std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(c.tokens) * c.keep + 0.5));
  std::vector<std::vector<int32_t>> sets;
  for (int t = 0; t < c.layers * c.kv_heads; ++t)
    sets.push_back(pick_survivors(survivors, c.tokens, kept, c.seed + static_cast<uint64_t>(t)));

  ReclaimRow row;
  row.packing = packing;
  row.survivors = survivors;
  row.tokens = c.tokens;
  row.blocks_before = arena->cache().held_blocks();
  row.bytes_before = arena->backend().kv_resident_bytes();
  const uint64_t rss = resident_memory().total;
  const auto start = std::chrono::steady_clock::now();

  MovePlan tables, moves;
  for (size_t t = 0; t < sets.size(); t += static_cast<size_t>(heads)) {
    const std::span group = std::span(sets).subspan(t, static_cast<size_t>(heads));
    if (packing == "block") {
      group[0] = whole_blocks(group, c.tokens, kept, c.block_size);
      for (auto& set : group.subspan(1)) set = group[0];
    }
    for (size_t h = 0; h < group.size(); ++h) {
      TableMoves m;
      m.layer = static_cast<int>(t) / c.kv_heads;
      m.head = static_cast<int>(t + h) % c.kv_heads;
      lay_out_table(packing_of(packing), group[h], c.tokens, c.block_size, nullptr, m);
      row.tokens_moved += static_cast<int64_t>(m.moves.size());
      moves.tables.push_back(std::move(m));
    }
    tables.tables.push_back(
        join_heads(std::span(moves.tables).subspan(t, static_cast<size_t>(heads)),
                   static_cast<int>(t) / c.kv_heads, static_cast<int>(t) % c.kv_heads / heads));
  }
  arena->apply(tables, moves);
  row.bytes_released = arena->backend().release_kv(0, 1);
  row.ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  row.kept = static_cast<int64_t>(sets[0].size());
  row.rss_released = rss - std::min(rss, resident_memory().total);
  row.blocks_after = arena->cache().held_blocks();
  row.blocks_freed = row.blocks_before - row.blocks_after;
  return row;
}

Result<std::vector<ReclaimRow>> measure_reclaim(const ReclaimCommand& command) {
  std::vector<ReclaimRow> rows;
  for (const char* packing : kPackings) {
    for (const char* survivors : kSurvivors) {
      const auto wanted = [](const std::string& word, const char* name) {
        return word == "all" || word == name;
      };
      if (!wanted(command.packing, packing) || !wanted(command.survivors, survivors)) continue;
      PF_ASSIGN(ReclaimRow row, measure_reclaim(command, packing, survivors));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

int run_reclaim(const ReclaimCommand& command) {
  const auto format = format_of(command);
  if (!format.ok()) return report(format.status());
  const auto rows = measure_reclaim(command);
  if (!rows.ok()) return report(rows.status());
  if (!command.json) {
    print_table(command, *format, *rows);
    return stdout_ok() ? kDone : report(io_error("standard output does not take the answer"));
  }
  Json list = Json::array();
  for (const ReclaimRow& r : *rows) {
    list.push_back({{"packing", r.packing},
                    {"survivors", r.survivors},
                    {"tokens", r.tokens},
                    {"kept", r.kept},
                    {"blocks_before", r.blocks_before},
                    {"blocks_after", r.blocks_after},
                    {"blocks_freed", r.blocks_freed},
                    {"bytes_released", r.bytes_released},
                    {"tokens_moved", r.tokens_moved},
                    {"ms", r.ms},
                    {"bytes_before", r.bytes_before},
                    {"rss_released", r.rss_released},
                    {"whole_blocks", r.packing == "block"}});
  }
  const Json out = {{"layout", command.layout},
                    {"layers", command.layers},
                    {"kv_heads", command.kv_heads},
                    {"head_dim", command.head_dim},
                    {"block_size", command.block_size},
                    {"kv_cache_dtype", dtype_name(format->k)},
                    {"kv_cache_dtype_v", dtype_name(format->v)},
                    {"kv_cache_group", format->group},
                    {"block_bytes", format->block_bytes(command.head_dim, command.block_size)},
                    {"rows", std::move(list)}};
  print_text(stdout, dump_json(out) + "\n");
  return stdout_ok() ? kDone : report(io_error("standard output does not take the answer"));
}

}  // namespace pagefold
