#include "api/calibration.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/compression.h"

namespace pagefold {
namespace {

// Bytes are tokens.
class BytesOnly final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool, bool) const override {
    std::vector<int32_t> out;
    for (const char c : text) out.push_back(static_cast<uint8_t>(c));
    return out;
  }
  std::string token_bytes(int32_t id, bool) const override { return {static_cast<char>(id)}; }
  std::string decode(std::span<const int32_t>, bool) const override { return {}; }
  const std::string& piece(int32_t) const override { return piece_; }
  bool is_special(int32_t) const override { return false; }
  int32_t find_piece(std::string_view) const override { return -1; }
  int32_t vocab_size() const override { return 256; }
  int32_t bos() const override { return 1; }
  int32_t eos() const override { return 2; }
  bool adds_bos() const override { return false; }
  bool strips_first_space() const override { return false; }

 private:
  std::string piece_;
};

// Its "query" of head h of layer l at band f is (token + l + h + f, -position), so that every sum
// can be told; its logits prefer nothing.
class SumModel final : public LanguageModel {
 public:
  SumModel() {
    shape_.n_layers = 2, shape_.n_heads = 4, shape_.n_kv_heads = 2, shape_.head_dim = 8;
    shape_.vocab_size = 256, shape_.context_length = 40;
    shape_.layer_window = {0, 0};
    shape_.inv_freq = {1.0, 0.5, 0.25};
  }
  const ModelShape& shape() const override { return shape_; }
  ModelShape& mutable_shape() { return shape_; }
  Status init(const KvShape& kv, const StepLimits& limits) override {
    kv_ = kv;
    limits_ = limits;
    return ok_status();
  }
  uint64_t block_bytes(const KvShape&) const override { return 1; }
  void blocks_freed(std::span<const BlockId>) override {}
  uint64_t weight_bytes() const override { return 0; }
  void forward(const StepBatch& b, float* logits) override {
    EXPECT_LE(static_cast<int>(b.tokens.size()), limits_.max_rows);
    EXPECT_LE(static_cast<int>(b.seqs.size()), limits_.max_seqs);
    std::map<BlockId, int> owner;
    for (const SeqRows& s : b.seqs) {
      EXPECT_EQ(s.signals->observe->stats_rows, s.n_rows);
      EXPECT_EQ(s.tables[0].len, b.positions[static_cast<size_t>(s.row)]);
      for (int t = 0; t < 4; ++t) {
        const int64_t blocks = (s.tables[t].len + s.n_rows + 15) / 16;
        for (int64_t i = 0; i < blocks; ++i) {
          EXPECT_LT(s.tables[t].blocks[i], kv_.n_blocks);
          EXPECT_EQ(owner[s.tables[t].blocks[i]]++, 0);
        }
      }
      for (int r = s.row; r < s.row + s.n_rows; ++r)
        add(*s.signals->observe, b.tokens[static_cast<size_t>(r)],
            b.positions[static_cast<size_t>(r)]);
    }
    std::fill_n(logits, b.logit_rows.size() * 256, 0.0f);
  }
  std::vector<int32_t> tokens;

 private:
  void add(const Observation& o, int32_t token, int64_t position) {
    EXPECT_LT(position, shape_.context_length);
    tokens.push_back(token);
    EXPECT_EQ(o.stats_first_row, 0);
    const QuerySums& s = *o.stats;
    size_t i = 0;
    for (int l = 0; l < 2; ++l)
      for (int h = 0; h < 4; ++h)
        for (int f = 0; f < 3; ++f, ++i) {
          s.re[i] += token + l + h + f;
          s.im[i] -= static_cast<double>(position);
          s.abs[i] += 1;
        }
  }
  ModelShape shape_;
  KvShape kv_;
  StepLimits limits_;
};

struct Rig {
  LoadedModel model;
  SumModel* network;
  Rig() {
    auto n = std::make_unique<SumModel>();
    network = n.get();
    model.network = std::move(n);
    model.tokenizer = std::make_unique<BytesOnly>();
    model.name = "sums";
    model.eos_token_ids = {2};
  }
};

TEST(Calibrate, ReadsTheTextInWindows) {
  Rig rig;
  CalibrationOptions o;
  for (int i = 0; i < 100; ++i) o.text += static_cast<char>('a' + i % 7);
  o.tokens = 90;  // windows of 40, 40 and 10
  int64_t reported = 0;
  o.progress = [&](int64_t done, int64_t total) {
    EXPECT_GT(done, reported);
    EXPECT_EQ(total, 90);
    reported = done;
  };
  const auto stats = calibrate(rig.model, o);
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(reported, 90);
  EXPECT_EQ(stats->rows, 90);
  EXPECT_EQ(stats->model, "sums");
  double tokens = 0;
  for (int i = 0; i < 90; ++i) tokens += 'a' + i % 7;
  EXPECT_NEAR(stats->re[0], tokens / 90, 1e-4);
  EXPECT_NEAR(stats->re[(1 * 4 + 3) * 3 + 2], tokens / 90 + 6, 1e-4);
  EXPECT_NEAR(stats->im[5], -(2 * 780 + 45) / 90.0, 1e-4);
  EXPECT_EQ(stats->abs[7], 1.0f);
  EXPECT_TRUE(check_calibration(*stats, kv_model(rig.network->shape(), 16)).ok());
}

TEST(Calibrate, WritesItsOwnTextByTheSeed) {
  const auto written = [](uint64_t seed) {
    Rig rig;
    CalibrationOptions o;
    o.tokens = 400;
    o.seed = seed;
    const auto stats = calibrate(rig.model, o);
    EXPECT_TRUE(stats.ok()) << stats.status();
    EXPECT_EQ(stats->rows, 400);
    EXPECT_EQ(rig.network->tokens.size(), 400u);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(rig.network->tokens[i], 1);  // eight texts
    return std::pair(rig.network->tokens, write_calibration(*stats));
  };
  const auto first = written(1);
  EXPECT_EQ(written(1), first);
  EXPECT_NE(written(2).first, first.first);
}

TEST(Calibrate, RefusesWhatTellsNothing) {
  Rig rig;
  CalibrationOptions o;
  o.text = "short";
  EXPECT_FALSE(calibrate(rig.model, o).ok());
  rig.network->mutable_shape().inv_freq.clear();
  o.text.assign(100, 'x');
  EXPECT_FALSE(calibrate(rig.model, o).ok());
}

}  // namespace
}  // namespace pagefold
