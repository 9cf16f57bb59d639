// Compaction equivalence on a real forward pass: a sequence that is compacted again and again gives
// the logits of its twin, which keeps every slot and masks those that the first one gave up.
#include <functional>
#include <random>
#include <set>

#include "kv/cache.h"
#include "kv/move_layout.h"
#include "model_runner.h"
#include "tiny_model.h"

namespace pagefold::testing {
namespace {

constexpr int kBlock = 16, kMostRows = 64;

Json tiny_config(int kv_heads) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 160},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", kv_heads},
          {"head_dim", 16},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"max_position_embeddings", 4096},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", true}};
}

// A model with two sequences of the same tokens in one pool.
class Twins {
 public:
  Twins(int kv_heads, const KvFormat& format) : pool_(2048) {
    const Json config = tiny_config(kv_heads);
    write_hf(folder_.path(), config, tiny_tensors(config), TensorType::F32);
    const auto files = open_model(folder_.path());
    NetworkOptions o;
    o.backend = {
        .isa = "auto", .threads = 2, .dtype = DType::f32, .activations = Activations::bits16};
    model_ = *load_network(files.value(), o);
    const ModelShape& s = model_->shape();
    EXPECT_TRUE(
        model_->init(kv_shape(s, format, kBlock, 2048), {2 * kMostRows, 2, 2 * kMostRows}).ok());
    kv_.n_layers = s.n_layers;
    kv_.n_heads = s.n_heads;
    kv_.n_kv_heads = s.n_kv_heads;
    kv_.head_dim = s.head_dim;
    kv_.block_size = kBlock;
    shape_ = {s.n_layers, s.n_kv_heads, kBlock, s.layer_window};
    ours_ = std::make_unique<SequenceCache>(shape_);
    twin_ = std::make_unique<SequenceCache>(shape_);
    const auto n = static_cast<size_t>(shape_.n_tables());
    at_.resize(n);
    live_.assign(n, std::vector<uint32_t>(kMaskWords, 0xffffffffu));
  }
  ~Twins() {
    std::vector<BlockId> freed;
    ours_->free_all(pool_, freed);
    twin_->free_all(pool_, freed);
    EXPECT_EQ(pool_.used_count(), 0u);
  }

  // `rows` more tokens for both. The difference of their logits over the logits, both as root mean
  // squares.
  double step(int64_t rows) {
    const int64_t vocab = model_->shape().vocab_size;
    EXPECT_TRUE(ours_->reserve(pool_, rows) && twin_->reserve(pool_, rows));
    std::vector<int32_t> tokens;
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < 2 * rows; ++i) {
      positions.push_back(computed_ + i % rows);
      tokens.push_back(static_cast<int32_t>(splitmix(7, static_cast<uint64_t>(positions.back())) %
                                            static_cast<uint64_t>(vocab)));
    }
    std::vector<int32_t> wanted(tokens.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    std::vector<TableView> masked(twin_->tables(), twin_->tables() + shape_.n_tables());
    for (size_t t = 0; t < masked.size(); ++t) masked[t].live = live_[t].data();
    const int n = static_cast<int>(rows);
    const SeqRows seqs[] = {{0, n, order_ ? order_->data() : ours_->tables()},
                            {n, n, masked.data()}};
    std::vector<float> logits(wanted.size() * static_cast<size_t>(vocab));
    model_->forward({tokens, positions, seqs, wanted}, logits.data());
    std::vector<BlockId> freed;
    ours_->commit(pool_, rows, freed);
    twin_->commit(pool_, rows, freed);
    for (auto& positions_of : at_) {
      for (int64_t i = 0; i < rows; ++i) positions_of.push_back(computed_ + i);
    }
    computed_ += rows;
    double difference = 0, sum = 0;
    const size_t half = logits.size() / 2;
    for (size_t i = 0; i < half; ++i) {
      const double a = logits[i], b = logits[half + i];
      difference += (a - b) * (a - b);
      sum += b * b;
    }
    return sum > 0 && std::isfinite(sum) ? std::sqrt(difference / sum) : INFINITY;
  }

  // Every table keeps what `keep` says of its live slots (whole blocks under packing `block`).
  void compact(Packing packing, const std::function<bool()>& keep) {
    std::vector<std::vector<int32_t>> kept(at_.size());
    for (size_t t = 0; t < at_.size(); ++t) {
      const auto len = static_cast<int32_t>(at_[t].size());
      bool whole = true;
      for (int32_t s = 0; s < len; ++s) {
        if (packing == Packing::block) {
          if (s % kBlock == 0) whole = keep();
        } else {
          whole = keep();
        }
        const int64_t position = at_[t][static_cast<size_t>(s)];
        if (!is_live(t, position)) continue;  // dead already
        if (whole || s + 1 == len) {
          if (packing == Packing::block && !whole) {  // the last block stays whole
            for (int32_t i = s / kBlock * kBlock; i < s; ++i) {
              kept[t].push_back(i);
              set_live(t, at_[t][static_cast<size_t>(i)]);
            }
          }
          kept[t].push_back(s);
        } else {
          live_[t][static_cast<size_t>(position / 32)] &= ~(1u << (position % 32));
        }
      }
    }
    MovePlan plan;
    lay_out_moves(packing, kv_, *ours_, pool_, kept, plan);
    ASSERT_TRUE(ours_->take_copies(pool_, plan));
    model_->move_slots(plan, ours_->tables());
    for (const TableMoves& m : plan.tables) follow(m);
    std::vector<BlockId> freed;
    ours_->apply(pool_, plan, freed);
    model_->blocks_freed(freed);
    ours_->check_invariants(pool_);
    check_kept();
  }

  // The full blocks of every table change places; every slot stays.
  void shuffle_blocks(std::mt19937& rng) {
    order_ids_.clear();
    order_.emplace(ours_->tables(), ours_->tables() + shape_.n_tables());
    for (TableView& v : *order_) {
      auto& ids = order_ids_.emplace_back(v.blocks, v.blocks + (v.len + kBlock - 1) / kBlock);
      std::shuffle(ids.begin(), ids.begin() + v.len / kBlock, rng);
    }
  }
  // After each reserve(): the shuffled ids, and the blocks that came since.
  double shuffled_step() {
    EXPECT_TRUE(ours_->reserve(pool_, 1));
    for (int t = 0; t < shape_.n_tables(); ++t) {
      const TableView& v = ours_->tables()[t];
      auto& ids = order_ids_[static_cast<size_t>(t)];
      while (static_cast<int64_t>(ids.size()) * kBlock < v.len + 1) {
        ids.push_back(v.blocks[ids.size()]);
      }
      (*order_)[static_cast<size_t>(t)] = {ids.data(), v.len, 0, nullptr};
    }
    return step(1);
  }

  int64_t held_blocks() const { return ours_->held_blocks(); }
  int64_t full_blocks() const { return twin_->held_blocks(); }

 private:
  static constexpr size_t kMaskWords = 128;

  bool is_live(size_t t, int64_t p) const {
    return (live_[t][static_cast<size_t>(p / 32)] >> (p % 32) & 1) != 0;
  }
  void set_live(size_t t, int64_t p) { live_[t][static_cast<size_t>(p / 32)] |= 1u << (p % 32); }

  // Positions move as the plan says the bytes do.
  void follow(const TableMoves& m) {
    auto& p = at_[static_cast<size_t>(m.layer * shape_.n_kv_heads + m.head)];
    for (const SlotMove& move : m.moves)
      p[static_cast<size_t>(move.to)] = p[static_cast<size_t>(move.from)];
    if (!m.dropped_blocks.empty()) {
      std::vector<int64_t> rest;
      for (size_t s = 0; s < p.size(); ++s) {
        const auto block = static_cast<int32_t>(s / kBlock);
        if (std::find(m.dropped_blocks.begin(), m.dropped_blocks.end(), block) ==
            m.dropped_blocks.end())
          rest.push_back(p[s]);
      }
      p = rest;
    }
    p.resize(static_cast<size_t>(m.len_after));
  }
  // The live slots hold exactly the positions that the twin still sees.
  void check_kept() {
    for (size_t t = 0; t < at_.size(); ++t) {
      std::set<int64_t> want, have;
      for (int64_t p = 0; p < computed_; ++p) {
        if (is_live(t, p)) want.insert(p);
      }
      for (const int64_t p : at_[t]) {
        if (is_live(t, p)) have.insert(p);
      }
      EXPECT_EQ(want, have) << "table " << t;  // and none twice, as the count says
      EXPECT_EQ(ours_->live_slots(static_cast<int>(t)), static_cast<int64_t>(want.size()));
    }
  }

  TempFolder folder_;
  std::unique_ptr<TransformerModel> model_;
  KvModel kv_;
  CacheShape shape_;
  BlockPool pool_;
  std::unique_ptr<SequenceCache> ours_, twin_;
  std::vector<std::vector<int64_t>> at_;     // [n_tables] position of every slot
  std::vector<std::vector<uint32_t>> live_;  // [n_tables] the twin's mask, by position
  std::optional<std::vector<TableView>> order_;
  std::vector<std::vector<BlockId>> order_ids_;
  int64_t computed_ = 0;
};

struct Setting {
  KvFormat kv;
  Packing packing;
  int kv_heads;
};

class Compaction : public ::testing::TestWithParam<Setting> {};

TEST_P(Compaction, TwentyRoundsEqualMaskedAttention) {
  const auto& [kv, packing, kv_heads] = GetParam();
  // Only the order of sums differs. Probabilities are rounded to the cache's type relative to
  // another maximum; a single step over a handful of slots shows bfloat16's own grain, 2^-9.
  // Integer values take them in 15 bits, int4 ones in 8, by chunks, and a key of the next layer may
  // then round to another integer: whole answers drift by it, where attention over the same stored
  // values stays within one bound before and after (tests/kernels/compacted_test.cpp).
  const bool integers = dtype_has_scales(kv.k) || dtype_has_scales(kv.v);
  const double most = kv.v == DType::int4 ? 4e-3 : kv.k == DType::f32 && !integers ? 1e-5 : 1e-3;
  const double most_of_step = kv.v == DType::int4                        ? 0x1p-5
                              : integers                                 ? 0x1p-6
                              : kv.v == DType::f32 || kv.v == DType::f16 ? most
                                                                         : 0x1p-9;
  Twins twins(kv_heads, kv);
  std::mt19937 rng(11);
  EXPECT_LT(twins.step(kMostRows), most_of_step);
  double sum = 0;
  for (int round = 0; round < 20; ++round) {
    // A quarter goes in some rounds, nine tenths in others.
    const unsigned share = round % 3 == 0 ? 10 : round % 3 == 1 ? 75 : 90;
    twins.compact(packing, [&] { return rng() % 100 < share; });
    for (int i = 0; i < 6; ++i) {
      const double error = twins.step(i < 5 ? 1 : 1 + static_cast<int64_t>(rng() % 40));
      EXPECT_LT(error, most_of_step) << "round " << round;
      sum += error;
    }
  }
  EXPECT_LT(sum / 120, most / 2);
  if (packing != Packing::off) {
    EXPECT_LT(twins.held_blocks() * 2, twins.full_blocks());
  }
}

class Shuffled : public ::testing::TestWithParam<KvFormat> {};

// Sums in another order change the last bits of a layer's output, and a key or value of the next
// layer may round to its neighbour: of 4 bits that is a sixteenth of a head's range. int4 values
// also take their weights in 8 bits, whose rounding depends on the order of the slots.
TEST_P(Shuffled, BlocksChangeNothing) {
  const bool four_bits = GetParam().k == DType::int4 || GetParam().v == DType::int4;
  const double most = four_bits ? 0x1p-4 : 1e-3;
  for (const int kv_heads : {1, 2, 4}) {
    Twins twins(kv_heads, GetParam());
    std::mt19937 rng(12);
    double sum = 0;
    for (int i = 0; i < 5; ++i) EXPECT_LT(twins.step(59), most);
    twins.shuffle_blocks(rng);
    for (int i = 0; i < 64; ++i) {
      const double error = twins.shuffled_step();
      EXPECT_LT(error, most) << i;
      sum += error;
    }
    EXPECT_LT(sum / 64, four_bits ? 5e-3 : 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Shuffled,
                         ::testing::Values(DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3,
                                           DType::fp8_e5m2, DType::int8, DType::int4,
                                           KvFormat(DType::int8, DType::int4, 32),
                                           KvFormat(DType::f32, DType::int8)));

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const DType d : {DType::f32, DType::f16, DType::bf16}) {
    for (const Packing p : {Packing::order, Packing::fill, Packing::block, Packing::off}) {
      for (const int heads : {1, 2, 4}) all.push_back({d, p, heads});
    }
  }
  // Scales and zero points move with their slots.
  const KvFormat few_bits[] = {{DType::fp8_e4m3},
                               {DType::fp8_e5m2},
                               {DType::int8},
                               {DType::int4},
                               {DType::int8, DType::int4, 32},
                               {DType::int4, DType::bf16},
                               {DType::f32, DType::int8}};
  for (const KvFormat& f : few_bits) {
    for (const Packing p : {Packing::order, Packing::fill, Packing::block, Packing::off})
      all.push_back({f, p, 2});
  }
  return all;
}

std::string setting_name(const ::testing::TestParamInfo<Setting>& s) {
  constexpr const char* kNames[] = {"order", "fill", "block", "off"};
  return fmt::format("{}_{}_{}_{}_{}heads", dtype_name(s.param.kv.k), dtype_name(s.param.kv.v),
                     s.param.kv.group, kNames[static_cast<int>(s.param.packing)], s.param.kv_heads);
}

INSTANTIATE_TEST_SUITE_P(Settings, Compaction, ::testing::ValuesIn(settings()), setting_name);

}  // namespace
}  // namespace pagefold::testing
