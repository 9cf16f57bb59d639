// A device: it owns the bytes of weights, activations and cached keys and values, and runs coarse
// operations. A device is a folder (cpu/, no_cuda/). Operations are as fused as is fast on the
// device; the model (model/forward) says only what is computed, in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "kv/table.h"

namespace pagefold {

// Handles; their meaning is the backend's own.
struct MatrixId {
  int32_t id = -1;
  bool valid() const { return id >= 0; }
};
struct VectorId {
  int32_t id = -1;
  bool valid() const { return id >= 0; }
};
struct BufferId {
  int32_t id = -1;
  bool valid() const { return id >= 0; }
};

// A matrix on its way to the device, row by row, so that no full-precision copy of the whole ever
// exists. rows(): fills out[n][n_in] float32 for rows [first, first + n). quant: when set, rows can
// also be read as integers with group scales (lossless), see QuantSource.
struct QuantSource {
  int bits = 8;    // 4: values 0..15; 8: int8
  int group = 32;  // 16 or 32
  bool has_min = false;
  bool scale_f16 = true;  // every scale and min is a float16 number
};
class MatrixSource {
 public:
  virtual ~MatrixSource() = default;
  virtual int64_t n_out() const = 0;
  virtual int64_t n_in() const = 0;
  virtual DType stored_dtype() const = 0;        // for unquantised sources
  virtual const QuantSource* quant() const = 0;  // null: unquantised
  virtual void row_f32(int64_t row, float* out) const = 0;
  virtual void row_quant(int64_t row, int8_t* q, float* scale, float* min) const = 0;
  // The bytes of rows before `row` are no longer needed (the file's pages may go).
  virtual void release_before(int64_t row) const { (void)row; }
};

// Shape of the cache and of the steps, fixed before the first step.
struct KvShape {
  int n_layers = 0, n_kv_heads = 0, head_dim = 0;
  int block_size = 16;
  DType k_dtype = DType::bf16, v_dtype = DType::bf16;
  uint32_t n_blocks = 0;  // blocks of one (layer, KV head) each
};
struct StepLimits {
  int max_rows = 0, max_seqs = 0, max_logit_rows = 0;
};

// One sequence's part of a step: rows [row, row + n_rows) of the batch.
// tables: [n_layers][n_kv_heads]. All rows of a sequence have ascending positions.
struct SeqRows {
  int row = 0, n_rows = 0;
  const TableView* tables = nullptr;
};

struct AttentionShape {
  int n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float scale = 0;     // of q . k
  int64_t window = 0;  // a row sees at most this many slots, its own included; 0: all
};
struct RopeShape {
  int rot = 0;              // rotated leading dims of a head
  bool half_layout = true;  // pairs (i, i + rot/2), else (2i, 2i+1)
  // Filled by the model for the step's rows: [rows][rot / 2].
  const float* cos = nullptr;
  const float* sin = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;    // "cpu"
  virtual std::string description() const = 0;  // for logs: ISA, threads

  // --- set-up ---
  // Several sources are stacked into one matrix (q, k, v; gate, up): outputs follow each other.
  virtual Result<MatrixId> load_matrix(std::span<const MatrixSource* const> parts) = 0;
  virtual Result<VectorId> load_vector(std::span<const float> values) = 0;
  virtual uint64_t weight_bytes() const = 0;
  virtual Status init_kv(const KvShape& shape) = 0;
  virtual uint64_t block_bytes() const = 0;  // K, V and scales of one block
  virtual Status init_step(const StepLimits& limits) = 0;
  // A float32 buffer [max_rows][cols]; after init_step.
  virtual Result<BufferId> make_buffer(int64_t cols) = 0;

  // --- one step; all rows are [0, rows) ---
  virtual void embed(std::span<const int32_t> tokens, MatrixId table, float scale,
                     BufferId out) = 0;
  // out = linear(rms_norm(x, gamma)) (+ bias). gamma invalid: no norm.
  virtual void norm_linear(int rows, BufferId x, VectorId gamma, float eps, MatrixId w,
                           VectorId bias, BufferId out) = 0;
  // residual += linear(in) (+ bias)
  virtual void linear_add(int rows, BufferId in, MatrixId w, VectorId bias, BufferId residual) = 0;
  // residual += linear(silu(gate) * up), gate_up = [gate | up]
  virtual void glu_linear_add(int rows, BufferId gate_up, MatrixId w, BufferId residual) = 0;
  // qkv = [q | k | v] of each row. Norms q and k heads (gammas invalid: not), rotates them in
  // place, appends k and v to the cache of `layer`, then attends: out[row] = heads' outputs side by
  // side.
  virtual void attention(int layer, std::span<const SeqRows> seqs, BufferId qkv,
                         const AttentionShape& shape, const RopeShape& rope, VectorId q_gamma,
                         VectorId k_gamma, float eps, BufferId out) = 0;
  // logits[i] = head(rms_norm(x[rows[i]], gamma)); out: [rows.size()][n_out] on the host.
  virtual void logits(std::span<const int32_t> rows, BufferId x, VectorId gamma, float eps,
                      MatrixId head, float* out) = 0;

  // --- cache bytes ---
  // These blocks hold nothing any more; the backend may give their pages back.
  virtual void blocks_freed(std::span<const BlockId> blocks) { (void)blocks; }
  virtual uint64_t kv_resident_bytes() const = 0;  // committed bytes of the arena
};

// isa: see kernels/kernels.h. threads >= 1. activations_int8: quantised matmuls take int8 inputs.
struct CpuBackendOptions {
  std::string isa = "auto";
  int threads = 1;
  DType dtype = DType::bf16;
  bool activations_int8 = true;
};
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuBackendOptions& options);
// Says that this build has no CUDA.
Result<std::unique_ptr<Backend>> make_cuda_backend();

}  // namespace pagefold
