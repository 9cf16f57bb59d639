// The CPU device: packed weights, one arena of blocks, a pool of threads.
#pragma once

#include <atomic>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/inputs.h"
#include "backend/cpu/key_centre.h"
#include "backend/cpu/key_reader.h"
#include "backend/cpu/kv_arena.h"
#include "backend/cpu/weights.h"

namespace pagefold::cpu {

// Below this many values an op is done before another thread has woken up.
constexpr int64_t kForkWork = 16384;

class CpuBackend final : public Backend {
 public:
  CpuBackend(const kernels::Kernels& k, const CpuBackendOptions& options);

  std::string_view name() const override { return "cpu"; }
  std::string description() const override;
  Result<MatrixId> load_matrix(std::span<const MatrixSource* const> parts) override;
  Result<VectorId> load_vector(std::span<const float> values) override;
  uint64_t weight_bytes() const override;
  Status init_kv(const KvShape& shape) override;
  uint64_t block_bytes() const override { return arena_.block_bytes(); }
  Status init_step(const StepLimits& limits) override;
  Result<BufferId> make_buffer(int64_t cols) override;
  void read_rows(BufferId buffer, int rows, float* out) override;
  void write_rows(BufferId buffer, int rows, const float* values) override;

  void embed(std::span<const int32_t> tokens, MatrixId table, float scale, BufferId out) override;
  void norm_linear(int rows, BufferId x, VectorId gamma, float eps, MatrixId w, VectorId bias,
                   BufferId out) override;
  void linear_add(int rows, BufferId in, MatrixId w, VectorId bias, BufferId residual) override;
  void glu_linear_add(int rows, BufferId gate_up, MatrixId w, BufferId residual) override;
  void attention(int layer, std::span<const SeqRows> seqs, BufferId qkv,
                 const AttentionShape& shape, const RopeShape& rope, VectorId q_gamma,
                 VectorId k_gamma, float eps, BufferId out) override;
  void logits(std::span<const int32_t> rows, BufferId x, VectorId gamma, float eps, MatrixId head,
              float* out) override;
  void score_keys(int layer, int head, const TableView& table, int64_t n, const KeyCoefficients& c,
                  float* const* out) override;
  void key_logits(int layer, int head, const TableView& table, int64_t n, const float* queries,
                  int n_queries, float scale, float* out) override;
  void read_keys(int layer, int head, const TableView& table, int64_t n, float* out) override;
  void score_tables(const KeyScoreQuery& query, const KeyTables& keys, ScoredKeys* out) override;
  void move_slots(const MovePlan& plan, const TableView* tables, int n_kv_heads) override;
  void copy_blocks(std::span<const BlockCopy> copies) override;
  void for_each(int64_t n, UnitFn fn) override { for_units(n, fn); }
  void save_blocks(std::span<const BlockId> blocks, std::byte* out) override;
  void load_blocks(std::span<const BlockId> blocks, std::span<const int32_t> filled,
                   const std::byte* in) override;
  Status blocks_taken(std::span<const BlockId> blocks) override {
    PF_TRY(arena_.take(blocks));
    return bounds_.enabled() ? bounds_.take(blocks) : ok_status();
  }
  void blocks_freed(std::span<const BlockId> blocks) override {
    arena_.free(blocks);
    if (bounds_.enabled()) bounds_.free(blocks);
  }
  uint64_t release_kv(uint64_t reserve_bytes, uint64_t least_bytes) override {
    return arena_.release(reserve_bytes, least_bytes) + bounds_.release(reserve_bytes, least_bytes);
  }
  // Page bounds included.
  KvMemory kv_memory() const override { return arena_.memory() + bounds_.memory(); }
  uint64_t kv_saturated() const override { return saturated_.load(std::memory_order_relaxed); }
  uint64_t kv_resident_bytes() const override { return kv_memory().committed_bytes; }
  void begin_key_means() override { centre_.begin(); }
  std::vector<float> take_key_means() override { return centre_.take(); }
  void set_key_centres(std::vector<float> centres) override { centre_.set(std::move(centres)); }
  Status enable_page_bounds() override;
  uint64_t page_bounds_bytes() const override { return bounds_.bytes_per_block(); }
  // To be called when slots of blocks [first, first + count) of a table were moved or copied;
  // filled: the table's slots. Does nothing unless bounds are kept.
  void refresh_page_bounds(const BlockId* blocks, int64_t first, int64_t count, int64_t filled) {
    if (bounds_.enabled()) bounds_.refresh(k_, arena_, blocks, first, count, filled);
  }
  const PageBounds& page_bounds() const { return bounds_; }
  // Row 0 of a buffer [max_rows][cols]. For tests.
  float* buffer_data(BufferId b) { return row(b, 0); }

 private:
  struct Buffer {
    FloatBuffer data;
    int64_t cols;
  };
  float* row(BufferId b, int64_t r) {
    return buffers_[static_cast<size_t>(b.id)].data.data() + r * cols(b);
  }
  int64_t cols(BufferId b) const { return buffers_[static_cast<size_t>(b.id)].cols; }
  const float* vector(VectorId v) const {
    return v.valid() ? vectors_[static_cast<size_t>(v.id)].data() : nullptr;
  }
  const Matrix& matrix(MatrixId m) const { return matrices_[static_cast<size_t>(m.id)]; }
  float k_scale(int layer) const {
    return kv_.k_scale.empty() ? 1.0f : kv_.k_scale[static_cast<size_t>(layer)];
  }
  float v_scale(int layer) const {
    return kv_.v_scale.empty() ? 1.0f : kv_.v_scale[static_cast<size_t>(layer)];
  }
  KeyReader key_reader(int layer, int head) const;

  // fn(row) for all rows: on the caller when the work is small, else over the pool.
  template <class F>
  void for_rows(int64_t rows, int64_t work_per_row, F&& fn);
  // fn(i) for units of unequal size: each thread takes the next one when it is free.
  template <class F>
  void for_units(int64_t units, F&& fn);
  void matmul(int rows, const Matrix& m, const float* bias, bool accumulate, float* y, int64_t ldy);
  void rotate_and_append(int layer, const SeqRows& seq, int head, float* qkv,
                         const AttentionShape& shape, const RopeShape& rope, const float* q_gamma,
                         const float* k_gamma, float eps);
  void append(int layer, const SeqRows& seq, int head, float* k_rows, float* v_rows, int64_t ld);
  void store_form(int layer, int64_t row, int64_t head, float* q, float* sink_q,
                  const AttentionShape& shape);
  void rotate_query(const SeqRows& seq, int row, int64_t head, float* q, float* sink_q, int dim,
                    const RopeShape& rope, int layer, int n_heads);
  void select_pages_of(int layer, const SeqRows& seq, int head, const float* q,
                       const AttentionShape& shape, PageSelection& out);
  void prepare_step(int layer, std::span<const SeqRows> seqs, const AttentionShape& shape,
                    const RopeShape& rope);

  const kernels::Kernels& k_;
  CpuBackendOptions options_;
  ThreadPool pool_;
  LastingMemory weights_;
  std::vector<Matrix> matrices_;
  std::vector<std::vector<float>> vectors_;
  std::vector<Buffer> buffers_;
  KvArena arena_;
  KvShape kv_;
  std::atomic<uint64_t> saturated_{0};
  KeyCentre centre_;
  StepLimits limits_;
  Inputs inputs_;
  Attention attention_;
  PageBounds bounds_;
  std::vector<PageSelection> selection_;  // [seqs][n_kv_heads] of the step
  bool select_ = false;                   // some sequence of the step reads a selection
  FloatBuffer sink_bias_;                 // [rows][n_heads]: see Attention::Args
  FloatBuffer sink_q_;                    // [rows][n_heads * head_dim], when a sequence re-indexes
  bool sinks_ = false;
};

template <class F>
void CpuBackend::for_rows(int64_t rows, int64_t work_per_row, F&& fn) {
  if (rows == 1 || rows * work_per_row < kForkWork) {
    for (int64_t r = 0; r < rows; ++r) fn(r);
    return;
  }
  pool_.run([&](int t, int threads) {
    const Range mine = share_of(rows, t, threads);
    for (int64_t r = mine.begin; r < mine.end; ++r) fn(r);
  });
}

template <class F>
void CpuBackend::for_units(int64_t units, F&& fn) {
  std::atomic<int64_t> next{0};
  pool_.run([&](int, int) {
    for (int64_t i = next.fetch_add(1); i < units; i = next.fetch_add(1)) fn(i);
  });
}

}  // namespace pagefold::cpu
