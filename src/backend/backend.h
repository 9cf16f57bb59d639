// A device: it owns the bytes of weights, activations and cached keys and values, and runs coarse
// operations. A device is a folder (cpu/, no_cuda/). Operations are as fused as is fast on the
// device; the model (model/forward) says only what is computed, in which order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/kv_format.h"
#include "base/result.h"
#include "base/threads.h"
#include "kv/moves.h"
#include "kv/signals.h"
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
// What the integers stand for:
//   linear    value = q * scale (+ min, or (q - zero) * scale)
//   table     value = table[q] * scale, q in 0..15 (4 bits): nf4, fp4, IQ4_NL, MXFP4
//   fp8       value = decode(q as an e4m3 code) * scale
enum class QuantValues : uint8_t { linear, table, fp8 };
struct QuantSource {
  int bits = 8;    // 4: values 0..15; 8: int8, or codes
  int group = 32;  // inputs a scale: 16, or a multiple of 32 that divides n_in (n_in: one a row)
  bool has_min = false;
  bool has_zero = false;  // not with has_min. Integers -128..255, given as floats in place of mins
  bool scale_f16 = true;  // every scale and min is a float16 number
  QuantValues values = QuantValues::linear;
  std::array<float, 16> table{};  // of QuantValues::table; all integers: int8 inputs are possible
  bool wants_16bit = false;  // activations=auto keeps the inputs in 16 bit (AWQ, GPTQ, W4A16, nf4)
  // Act-order: packed input j is the source's input order[j], so that groups lie together; the
  // inputs are gathered the same way. Rows are delivered in packed order. Empty: as they are.
  std::span<const int32_t> order;
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
  int group = 0;          // elements that share a scale in int8 and int4; 0: the whole head
  // Keys (and queries) are rotated by a block-Hadamard matrix before they are stored: int4
  // and fp8 lose less where no dimension stands out. What reads keys for a policy turns them back.
  bool hadamard_keys = false;
  // fp8: value = code * scale, one a layer; empty: 1.
  std::vector<float> k_scale, v_scale;
  // The model measures what keys share and calls set_key_centres before the first step.
  bool centred_keys = false;
  // Memory of the cache in pages of 2 MiB: faster to read, given back in such pieces only.
  bool huge_pages = false;

  uint64_t block_bytes() const {  // K, V and scales
    return KvFormat(k_dtype, v_dtype, group).block_bytes(head_dim, block_size);
  }
};
struct StepLimits {
  int max_rows = 0, max_seqs = 0, max_logit_rows = 0;
};

// What a step does for one sequence's cache policy. A sequence without signals costs nothing.
struct SeqSignals {
  // What to record while attention runs (kv/signals.h); null: nothing.
  const Observation* observe = nullptr;
  // Quest: a step of one row reads only the best `quest_blocks` blocks of a table (the last block
  // and those of re-indexed sinks always), from layer `quest_first_layer` on, in layers without a
  // sliding window; needs enable_page_bounds. 0: reads everything, as rows of a prompt must, or
  // the result would depend on how the prompt is cut. The counters get the blocks that such steps
  // read, in every layer and head ([0]), and what a full pass would have read ([1]).
  int quest_blocks = 0, quest_first_layer = 2;
  int64_t* quest_blocks_read = nullptr;
  // Re-indexing (StreamingLLM): the first `sink_slots` slots are attended with queries rotated to
  // position - sink_shift, as if nothing lay between the sinks and the rest.
  int64_t sink_slots = 0, sink_shift = 0;
};

// One sequence's part of a step: rows [row, row + n_rows) of the batch.
// tables: [n_layers][n_kv_heads]. All rows of a sequence have ascending positions.
struct SeqRows {
  int row = 0, n_rows = 0;
  const TableView* tables = nullptr;
  const SeqSignals* signals = nullptr;
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
  // The same for the sink queries of rows whose sequence re-indexes (SeqSignals::sink_shift): at
  // position - sink_shift. Other rows are not read; null when no sequence of the step does.
  const float* sink_cos = nullptr;
  const float* sink_sin = nullptr;
};

// The cached keys of one sequence and how its model reads them.
struct KeyTables {
  const TableView* tables = nullptr;  // [n_layers][n_kv_heads]
  int n_layers = 0, n_heads = 0, n_kv_heads = 0;
  float scale = 0;          // of q . k
  bool half_layout = true;  // of the rotary pairs, see RopeShape
};

// Memory of the cache as the backend counts it; the last three only grow.
struct KvMemory {
  uint64_t committed_bytes = 0;  // in physical memory
  uint64_t spare_bytes = 0;      // committed, but no taken block needs them
  uint64_t released_bytes = 0;   // given back to the operating system
  uint64_t release_calls = 0;    // system calls for it
  uint64_t commit_calls = 0;     // and for committing
  friend KvMemory operator+(const KvMemory& a, const KvMemory& b) {
    return {a.committed_bytes + b.committed_bytes, a.spare_bytes + b.spare_bytes,
            a.released_bytes + b.released_bytes, a.release_calls + b.release_calls,
            a.commit_calls + b.commit_calls};
  }
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
  // Rows [0, rows) of a buffer on the host, [rows][cols], for calibration, which looks at what
  // passes between the operations and brings its own inputs.
  virtual void read_rows(BufferId buffer, int rows, float* out) = 0;
  virtual void write_rows(BufferId buffer, int rows, const float* values) = 0;

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
  // Scores of the stored keys of one table for each query head g of its group: out[g][slot], slot <
  // n:
  //   sum_f re[g][f] Re(k_f) + im[g][f] Im(k_f) + norm[g][f] |k_f|,  f = 0 .. rot / 2 - 1
  // k_f: the pair of cached (rotated) dims of band f. Coefficients: [group][rot / 2]. Here and
  // below keys are what the model gave, as far as the cache's type holds it: scaled, and without
  // the centre and the Hadamard rotation of their store.
  struct KeyCoefficients {
    const float *re = nullptr, *im = nullptr, *norm = nullptr;
    int group = 1, bands = 0;
    bool half_layout = true;
  };
  virtual void score_keys(int layer, int head, const TableView& table, int64_t n,
                          const KeyCoefficients& c, float* const* out) = 0;
  // Scaled logits of `queries` rotated queries (one KV head's group x ring rows) against all n
  // keys: out[query][n].
  virtual void key_logits(int layer, int head, const TableView& table, int64_t n,
                          const float* queries, int n_queries, float scale, float* out) = 0;
  // Keys of n slots as float32 [n][head_dim], for policies that need them as they are.
  virtual void read_keys(int layer, int head, const TableView& table, int64_t n, float* out) = 0;
  // What a compaction wants scored, all tables of a sequence in one call: kv/signals.h says what
  // goes into out[layer * n_kv_heads + head]; tables with a null `logits` there are left out. Dead
  // slots and blocks get finite values that mean nothing.
  virtual void score_tables(const KeyScoreQuery& query, const KeyTables& keys, ScoredKeys* out) = 0;
  // Executes the copies and the moves: K, V and scales. tables: of the sequence, before the plan.
  virtual void move_slots(const MovePlan& plan, const TableView* tables, int n_kv_heads) = 0;
  // Copies whole blocks, in order (a fork's last block before it is written).
  virtual void copy_blocks(std::span<const BlockCopy> copies) = 0;
  // fn(i) for every i in [0, n), by the threads that compute steps: for what a caller computes
  // between two of them.
  virtual void for_each(int64_t n, UnitFn fn) {
    for (int64_t i = 0; i < n; ++i) fn(i);
  }
  // The bytes of blocks, block_bytes() each, one after the other, and back into other blocks;
  // filled: slots in use of each block.
  virtual void save_blocks(std::span<const BlockId> blocks, std::byte* out) = 0;
  virtual void load_blocks(std::span<const BlockId> blocks, std::span<const int32_t> filled,
                           const std::byte* in) = 0;
  // Keeps the bounds of every block's keys from now on, for Quest. After init_kv, before the first
  // step; calling it again changes nothing. page_bounds_bytes: of one block.
  virtual Status enable_page_bounds() {
    return bad_input("this device keeps no bounds of cache blocks, which quest needs");
  }
  virtual uint64_t page_bounds_bytes() const { return 0; }

  // --- memory of the cache ---
  // Blocks that the pool has just handed out and that the next step may write; their memory is
  // committed in batches. Without this call the first write commits, page by page and many times
  // slower. Error: the machine has no memory left.
  virtual Status blocks_taken(std::span<const BlockId> blocks) {
    (void)blocks;
    return ok_status();
  }
  // These blocks hold nothing any more. Costs no system call: release_kv gives memory back.
  virtual void blocks_freed(std::span<const BlockId> blocks) { (void)blocks; }
  // Gives memory that no taken block needs back to the operating system, except `reserve_bytes`
  // of it, which stay committed for the blocks to come (what the running sequences refill within
  // one interval). Does nothing while there is less than `least_bytes` to give, so that it may be
  // called often. Returns the bytes given back.
  virtual uint64_t release_kv(uint64_t reserve_bytes, uint64_t least_bytes) {
    (void)reserve_bytes, (void)least_bytes;
    return 0;
  }
  virtual KvMemory kv_memory() const { return {}; }
  // Elements that were beyond the largest finite value of an fp8 cache and were cut off, so far.
  virtual uint64_t kv_saturated() const { return 0; }
  // Centred keys. Between the first two calls the keys of all steps are averaged, before their
  // rotation: [n_layers][n_kv_heads][head_dim]. Centres, of the same shape, are taken off rotated
  // keys from then on; no sequence may be cached then. A device that stores keys as they are does
  // nothing.
  virtual void begin_key_means() {}
  virtual std::vector<float> take_key_means() { return {}; }
  virtual void set_key_centres(std::vector<float> centres) { (void)centres; }
  virtual uint64_t kv_resident_bytes() const = 0;  // committed bytes of the cache
};

// What a matmul by quantised weights reads its inputs as. automatic: 16 bits where the source
// wants_16bit or its weights are no integers (fp8, a table of real numbers), else int8. Forcing
// int8 on the latter is an error. bits16: in --dtype.
enum class Activations : uint8_t { automatic, bits16, int8 };
// Resolves `wanted` for one source; automatic never fails. To be asked of every source before
// weights are read: load_matrix answers the same, but later.
Result<Activations> resolve_activations(const QuantSource& source, Activations wanted);

// isa: see kernels/kernels.h. threads >= 1.
struct CpuBackendOptions {
  std::string isa = "auto";
  int threads = 1;
  DType dtype = DType::bf16;
  Activations activations = Activations::automatic;
};
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuBackendOptions& options);
// Says that this build has no CUDA.
Result<std::unique_ptr<Backend>> make_cuda_backend();

}  // namespace pagefold
