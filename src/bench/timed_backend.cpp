#include "bench/timed_backend.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "bench/bandwidth.h"

namespace pagefold::bench {
namespace {

class TimedBackend final : public Backend {
 public:
  TimedBackend(std::unique_ptr<Backend> inner, StageTimes& times, std::vector<MatrixDims>& matrices)
      : inner_(std::move(inner)), times_(times), shapes_(matrices) {}

  // --- what is timed ---
  Result<MatrixId> load_matrix(std::span<const MatrixSource* const> parts) override {
    const uint64_t before = inner_->weight_bytes();
    PF_ASSIGN(const MatrixId id, inner_->load_matrix(parts));
    const auto i = static_cast<size_t>(id.id);
    if (matrix_bytes_.size() <= i) matrix_bytes_.resize(i + 1);
    matrix_bytes_[i] = static_cast<double>(inner_->weight_bytes() - before);
    MatrixDims dims{0, static_cast<int>(parts.front()->n_in())};
    for (const MatrixSource* part : parts) dims.first += static_cast<int>(part->n_out());
    if (std::find(shapes_.begin(), shapes_.end(), dims) == shapes_.end()) shapes_.push_back(dims);
    return id;
  }
  void embed(std::span<const int32_t> tokens, MatrixId table, float scale, BufferId out) override {
    timed(Stage::embed, 0, [&] { inner_->embed(tokens, table, scale, out); });
  }
  void norm_linear(int rows, BufferId x, VectorId gamma, float eps, MatrixId w, VectorId bias,
                   BufferId out) override {
    timed(Stage::norm_linear, bytes_of(w),
          [&] { inner_->norm_linear(rows, x, gamma, eps, w, bias, out); });
  }
  void linear_add(int rows, BufferId in, MatrixId w, VectorId bias, BufferId residual) override {
    timed(Stage::linear_add, bytes_of(w), [&] { inner_->linear_add(rows, in, w, bias, residual); });
  }
  void glu_linear_add(int rows, BufferId gate_up, MatrixId w, BufferId residual) override {
    timed(Stage::glu_linear_add, bytes_of(w),
          [&] { inner_->glu_linear_add(rows, gate_up, w, residual); });
  }
  void attention(int layer, std::span<const SeqRows> seqs, BufferId qkv,
                 const AttentionShape& shape, const RopeShape& rope, VectorId q_gamma,
                 VectorId k_gamma, float eps, BufferId out) override {
    double slots = 0;
    for (const SeqRows& s : seqs) {
      for (int h = 0; h < shape.n_kv_heads; ++h) {
        const TableView& t = s.tables[layer * shape.n_kv_heads + h];
        slots += static_cast<double>(t.len - t.start + s.n_rows);
      }
    }
    const double slot_bytes =
        static_cast<double>(inner_->block_bytes()) / static_cast<double>(block_size_);
    timed(Stage::attention, slots * slot_bytes,
          [&] { inner_->attention(layer, seqs, qkv, shape, rope, q_gamma, k_gamma, eps, out); });
  }
  void logits(std::span<const int32_t> rows, BufferId x, VectorId gamma, float eps, MatrixId head,
              float* out) override {
    timed(Stage::logits, bytes_of(head), [&] { inner_->logits(rows, x, gamma, eps, head, out); });
  }
  Status init_kv(const KvShape& shape) override {
    block_size_ = shape.block_size;
    return inner_->init_kv(shape);
  }

  // --- the rest is passed on ---
  std::string_view name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  Result<VectorId> load_vector(std::span<const float> values) override {
    return inner_->load_vector(values);
  }
  uint64_t weight_bytes() const override { return inner_->weight_bytes(); }
  uint64_t block_bytes() const override { return inner_->block_bytes(); }
  Status init_step(const StepLimits& limits) override { return inner_->init_step(limits); }
  Result<BufferId> make_buffer(int64_t cols) override { return inner_->make_buffer(cols); }
  void read_rows(BufferId buffer, int rows, float* out) override {
    inner_->read_rows(buffer, rows, out);
  }
  void write_rows(BufferId buffer, int rows, const float* values) override {
    inner_->write_rows(buffer, rows, values);
  }
  void score_keys(int layer, int head, const TableView& table, int64_t n, const KeyCoefficients& c,
                  float* const* out) override {
    inner_->score_keys(layer, head, table, n, c, out);
  }
  void key_logits(int layer, int head, const TableView& table, int64_t n, const float* queries,
                  int n_queries, float scale, float* out) override {
    inner_->key_logits(layer, head, table, n, queries, n_queries, scale, out);
  }
  void read_keys(int layer, int head, const TableView& table, int64_t n, float* out) override {
    inner_->read_keys(layer, head, table, n, out);
  }
  void for_each(int64_t n, UnitFn fn) override { inner_->for_each(n, fn); }
  void score_tables(const KeyScoreQuery& query, const KeyTables& keys, ScoredKeys* out) override {
    inner_->score_tables(query, keys, out);
  }
  void move_slots(const MovePlan& plan, const TableView* tables, int n_kv_heads) override {
    inner_->move_slots(plan, tables, n_kv_heads);
  }
  void copy_blocks(std::span<const BlockCopy> copies) override { inner_->copy_blocks(copies); }
  void save_blocks(std::span<const BlockId> blocks, std::byte* out) override {
    inner_->save_blocks(blocks, out);
  }
  void load_blocks(std::span<const BlockId> blocks, std::span<const int32_t> filled,
                   const std::byte* in) override {
    inner_->load_blocks(blocks, filled, in);
  }
  Status enable_page_bounds() override { return inner_->enable_page_bounds(); }
  uint64_t page_bounds_bytes() const override { return inner_->page_bounds_bytes(); }
  Status blocks_taken(std::span<const BlockId> blocks) override {
    return inner_->blocks_taken(blocks);
  }
  void blocks_freed(std::span<const BlockId> blocks) override { inner_->blocks_freed(blocks); }
  uint64_t release_kv(uint64_t reserve_bytes, uint64_t least_bytes) override {
    return inner_->release_kv(reserve_bytes, least_bytes);
  }
  KvMemory kv_memory() const override { return inner_->kv_memory(); }
  uint64_t kv_saturated() const override { return inner_->kv_saturated(); }
  void begin_key_means() override { inner_->begin_key_means(); }
  std::vector<float> take_key_means() override { return inner_->take_key_means(); }
  void set_key_centres(std::vector<float> centres) override {
    inner_->set_key_centres(std::move(centres));
  }
  uint64_t kv_resident_bytes() const override { return inner_->kv_resident_bytes(); }

 private:
  double bytes_of(MatrixId m) const { return matrix_bytes_[static_cast<size_t>(m.id)]; }
  template <class F>
  void timed(Stage stage, double bytes, const F& work) {
    const double start = seconds();
    work();
    StageTime& t = times_[static_cast<size_t>(stage)];
    t.seconds += seconds() - start;
    t.bytes += bytes;
  }

  std::unique_ptr<Backend> inner_;
  StageTimes& times_;
  std::vector<MatrixDims>& shapes_;
  std::vector<double> matrix_bytes_;
  int block_size_ = 16;
};

}  // namespace

std::string_view stage_name(size_t stage) {
  constexpr std::array<std::string_view, kStages> kNames = {
      "embed", "norm_linear", "attention", "linear_add", "glu_linear_add", "logits"};
  return kNames[stage];
}

std::unique_ptr<Backend> time_backend(std::unique_ptr<Backend> inner, StageTimes& times,
                                      std::vector<MatrixDims>& matrices) {
  return std::make_unique<TimedBackend>(std::move(inner), times, matrices);
}

}  // namespace pagefold::bench
