#include "backend/cpu/cpu_backend.h"

#include <algorithm>

#include "base/check.h"

namespace pagefold::cpu {
namespace {

bool reindexes(const SeqRows& s) {
  return s.signals != nullptr && s.signals->sink_slots > 0 && s.signals->sink_shift != 0;
}
bool selects(const SeqRows& s, int layer, const AttentionShape& shape) {
  return s.signals != nullptr && s.signals->quest_blocks > 0 && s.n_rows == 1 &&
         shape.window == 0 && layer >= s.signals->quest_first_layer;
}

}  // namespace

CpuBackend::CpuBackend(const kernels::Kernels& k, const CpuBackendOptions& options)
    : k_(k),
      options_(options),
      pool_(options.threads),
      inputs_(k, options.dtype),
      attention_(k, pool_) {}

std::string CpuBackend::description() const {
  return fmt::format("cpu, {} kernels, {} thread{}", k_.name, pool_.size(),
                     pool_.size() == 1 ? "" : "s");
}

Result<MatrixId> CpuBackend::load_matrix(std::span<const MatrixSource* const> parts) {
  PF_ASSIGN(Matrix m, pack_matrix(parts, {options_.dtype, options_.activations}, pool_, weights_));
  matrices_.push_back(std::move(m));
  return MatrixId{static_cast<int32_t>(matrices_.size() - 1)};
}

Result<VectorId> CpuBackend::load_vector(std::span<const float> values) {
  vectors_.emplace_back(values.begin(), values.end());
  return VectorId{static_cast<int32_t>(vectors_.size() - 1)};
}

uint64_t CpuBackend::weight_bytes() const {
  uint64_t sum = 0;
  for (const Matrix& m : matrices_) sum += m.bytes();
  for (const auto& v : vectors_) sum += v.size() * sizeof(float);
  return sum;
}

Status CpuBackend::init_kv(const KvShape& shape) {
  const auto layers = static_cast<size_t>(shape.n_layers);
  PF_CHECK(shape.k_scale.empty() || shape.k_scale.size() == layers);
  PF_CHECK(shape.v_scale.empty() || shape.v_scale.size() == layers);
  kv_ = shape;
  centre_.init(shape);
  // A model may serve one engine after another: nothing of the last one's pool stays.
  bounds_ = PageBounds();
  saturated_ = 0;
  return arena_.init({shape.k_dtype, shape.v_dtype, shape.head_dim, shape.block_size, shape.group},
                     shape.n_blocks, shape.huge_pages);
}

Status CpuBackend::init_step(const StepLimits& limits) {
  limits_ = limits;
  buffers_.clear();  // of the limits before
  int64_t widest = 0;
  size_t orders = 1;
  for (const Matrix& m : matrices_) {
    widest = std::max(widest, m.n_in);
    orders = std::max(orders, m.arrangements.size());
  }
  return inputs_.reserve(std::max(limits.max_rows, limits.max_logit_rows), widest,
                         static_cast<int64_t>(orders));
}

Result<BufferId> CpuBackend::make_buffer(int64_t cols) {
  Buffer b{{}, cols};
  PF_TRY(b.data.ensure(static_cast<size_t>(limits_.max_rows) * static_cast<size_t>(cols)));
  buffers_.push_back(std::move(b));
  return BufferId{static_cast<int32_t>(buffers_.size() - 1)};
}

void CpuBackend::read_rows(BufferId buffer, int rows, float* out) {
  std::copy_n(row(buffer, 0), rows * cols(buffer), out);
}
void CpuBackend::write_rows(BufferId buffer, int rows, const float* values) {
  PF_CHECK(rows <= limits_.max_rows);
  std::copy_n(values, rows * cols(buffer), row(buffer, 0));
}

void CpuBackend::matmul(int rows, const Matrix& m, const float* bias, bool accumulate, float* y,
                        int64_t ldy) {
  pool_.run([&](int t, int threads) {
    const Range mine = share_of(m.tiles, t, threads);
    int64_t first = 0;  // tiles of the segments before
    for (const Segment& s : m.segments) {
      const int64_t n = s.packed.shape.tiles();
      kernels::MatmulArgs a;
      a.tile_begin = static_cast<int>(std::clamp<int64_t>(mine.begin - first, 0, n));
      a.tile_end = static_cast<int>(std::clamp<int64_t>(mine.end - first, 0, n));
      first += n;
      if (a.tile_begin >= a.tile_end) continue;
      inputs_.fill(a, s, m.n_in);
      a.weights = &s.packed;
      a.rows = rows;
      a.y = y + s.column;
      a.ldy = ldy;
      a.bias = bias ? bias + s.column : nullptr;
      a.accumulate = accumulate;
      k_.matmul(a);
    }
  });
}

void CpuBackend::embed(std::span<const int32_t> tokens, MatrixId table, float scale, BufferId out) {
  const Matrix& m = matrix(table);
  PF_CHECK(m.segments.size() == 1 && static_cast<int64_t>(tokens.size()) <= limits_.max_rows);
  for_rows(static_cast<int64_t>(tokens.size()), 8 * m.n_in, [&](int64_t r) {
    float* x = row(out, r);
    const int32_t token = tokens[static_cast<size_t>(r)];
    PF_CHECK(token >= 0 && token < m.n_out);
    m.read_row(token, x);
    if (scale != 1.0f) {
      for (int64_t i = 0; i < m.n_in; ++i) x[i] *= scale;
    }
  });
}

void CpuBackend::norm_linear(int rows, BufferId x, VectorId gamma, float eps, MatrixId w,
                             VectorId bias, BufferId out) {
  const Matrix& m = matrix(w);
  for_rows(rows, m.n_in, [&](int64_t r) {
    float* normed = inputs_.row(m, r);
    if (const float* g = vector(gamma))
      k_.rms_norm(row(x, r), g, eps, static_cast<int>(m.n_in), normed);
    else
      std::copy_n(row(x, r), m.n_in, normed);
    inputs_.set_row(m, r, normed);
  });
  matmul(rows, m, vector(bias), false, row(out, 0), cols(out));
}

void CpuBackend::linear_add(int rows, BufferId in, MatrixId w, VectorId bias, BufferId residual) {
  const Matrix& m = matrix(w);
  for_rows(rows, m.n_in, [&](int64_t r) { inputs_.set_row(m, r, row(in, r)); });
  matmul(rows, m, vector(bias), true, row(residual, 0), cols(residual));
}

void CpuBackend::glu_linear_add(int rows, BufferId gate_up, MatrixId w, BufferId residual) {
  const Matrix& m = matrix(w);
  for_rows(rows, 8 * m.n_in, [&](int64_t r) {
    const float* gate = row(gate_up, r);
    float* h = inputs_.row(m, r);
    k_.silu_mul(gate, gate + m.n_in, static_cast<int>(m.n_in), h);
    inputs_.set_row(m, r, h);
  });
  matmul(rows, m, nullptr, true, row(residual, 0), cols(residual));
}

// Queries of a row's head: rotated in place, a copy for the sinks, what signals want of them.
void CpuBackend::rotate_query(const SeqRows& seq, int row, int64_t head, float* q, float* sink_q,
                              int dim, const RopeShape& rope, int layer, int n_heads) {
  const int64_t angles = int64_t{seq.row + row} * (rope.rot / 2);
  const Observation* o = seq.signals == nullptr ? nullptr : seq.signals->observe;
  const int64_t layer_head = int64_t{layer} * n_heads + head;
  if (o != nullptr) add_query_stats(*o, layer_head, row, q, rope.rot, rope.half_layout);
  if (sink_q != nullptr) {
    float* copy = sink_q + head * dim;
    std::copy_n(q, dim, copy);
    k_.rope(copy, rope.sink_cos + angles, rope.sink_sin + angles, rope.rot, rope.half_layout);
  }
  k_.rope(q, rope.cos + angles, rope.sin + angles, rope.rot, rope.half_layout);
  // What policies see of queries is the model's own: their keys are turned back too.
  if (o != nullptr) keep_query(*o, layer, static_cast<int>(head), n_heads, row, seq.n_rows, q, dim);
}

// A query in the form that keys are stored in. Sinks are attended with another query, and centred
// keys leave out the product of the centre with each: what the sinks' logits lack is kept.
void CpuBackend::store_form(int layer, int64_t row, int64_t head, float* q, float* sink_q,
                            const AttentionShape& shape) {
  const int dim = shape.head_dim;
  float* sink = sink_q == nullptr ? nullptr : sink_q + head * dim;
  if (sink != nullptr) {
    const float* centre =
        centre_.of(layer, static_cast<int>(head) / (shape.n_heads / shape.n_kv_heads));
    double bias = 0;
    for (int d = 0; centre != nullptr && d < dim; ++d)
      bias += (double{sink[d]} - double{q[d]}) * double{centre[d]};
    sink_bias_.data()[row * shape.n_heads + head] = static_cast<float>(bias) * shape.scale;
  }
  if (!kv_.hadamard_keys) return;
  k_.hadamard(q, dim);
  if (sink != nullptr) k_.hadamard(sink, dim);
}

void CpuBackend::rotate_and_append(int layer, const SeqRows& seq, int head, float* qkv,
                                   const AttentionShape& shape, const RopeShape& rope,
                                   const float* q_gamma, const float* k_gamma, float eps) {
  const int group = shape.n_heads / shape.n_kv_heads, dim = shape.head_dim, half = rope.rot / 2;
  const int64_t ld = int64_t{shape.n_heads + 2 * shape.n_kv_heads} * dim;
  float* first = qkv + seq.row * ld;
  float* k_rows = first + int64_t{shape.n_heads + head} * dim;
  const int64_t slot = seq.tables[layer * shape.n_kv_heads + head].len;
  for (int r = 0; r < seq.n_rows; ++r) {
    const int64_t row = seq.row + r;
    float* sink_q = reindexes(seq) && sinks_ ? sink_q_.data() + row * shape.n_heads * dim : nullptr;
    for (int64_t h = int64_t{head} * group; h < (head + 1) * group; ++h) {
      float* q = first + r * ld + h * dim;
      if (q_gamma) k_.rms_norm(q, q_gamma, eps, dim, q);
      rotate_query(seq, r, h, q, sink_q, dim, rope, layer, shape.n_heads);
      store_form(layer, row, h, q, sink_q, shape);
    }
    float* k = k_rows + r * ld;
    if (k_gamma) k_.rms_norm(k, k_gamma, eps, dim, k);
    if (centre_.measuring()) centre_.add(layer, head, slot + r, 1, k, ld);
    k_.rope(k, rope.cos + row * half, rope.sin + row * half, rope.rot, rope.half_layout);
  }
  append(layer, seq, head, k_rows, k_rows + int64_t{shape.n_kv_heads} * dim, ld);
}

// The rows of one KV head into its table. Keys take the store's form in place.
void CpuBackend::append(int layer, const SeqRows& seq, int head, float* k_rows, float* v_rows,
                        int64_t ld) {
  centre_.subtract(layer, head, seq.n_rows, k_rows, ld);
  for (int r = 0; kv_.hadamard_keys && r < seq.n_rows; ++r)
    k_.hadamard(k_rows + r * ld, kv_.head_dim);
  uint64_t saturated = 0;
  const TableView& table = seq.tables[layer * kv_.n_kv_heads + head];
  kernels::KvAppendArgs a;
  a.base = arena_.base();
  a.blocks = table.blocks;
  a.first_slot = table.len;
  a.rows = seq.n_rows;
  a.k = k_rows;
  a.v = v_rows;
  a.ldk = a.ldv = ld;
  a.k_scale = k_scale(layer);
  a.v_scale = v_scale(layer);
  a.saturated = &saturated;
  k_.kv_append(arena_.layout(), a);
  if (saturated > 0 && !centre_.measuring())
    saturated_.fetch_add(saturated, std::memory_order_relaxed);
  if (bounds_.enabled())
    bounds_.append(k_, arena_, table.blocks, table.len, seq.n_rows, k_rows, ld);
}

Status CpuBackend::enable_page_bounds() {
  PF_CHECK(kv_.n_blocks > 0, "enable_page_bounds before init_kv");
  return bounds_.init(arena_, kv_.n_blocks);
}

// Blocks that the step's one row of a table reads. q: of the row's group, rotated.
void CpuBackend::select_pages_of(int layer, const SeqRows& seq, int head, const float* q,
                                 const AttentionShape& shape, PageSelection& out) {
  out.index.clear();
  if (!selects(seq, layer, shape)) return;
  const TableView& table = seq.tables[layer * shape.n_kv_heads + head];
  const int size = arena_.layout().block_size;
  const int64_t sinks = sinks_ && reindexes(seq) ? seq.signals->sink_slots : 0;
  select_blocks(k_, bounds_, table.blocks, table.len / size + 1, seq.signals->quest_blocks,
                (sinks + size - 1) / size, q, shape.n_heads / shape.n_kv_heads, shape.head_dim,
                out);
}

void CpuBackend::prepare_step(int layer, std::span<const SeqRows> seqs, const AttentionShape& shape,
                              const RopeShape& rope) {
  select_ = sinks_ = false;
  const int size = arena_.layout().block_size;
  for (const SeqRows& s : seqs) {
    sinks_ |= reindexes(s);
    select_ |= selects(s, layer, shape);
    const bool counts = s.signals != nullptr && s.signals->quest_blocks > 0 && s.n_rows == 1;
    if (!counts || s.signals->quest_blocks_read == nullptr) continue;
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      const TableView& t = s.tables[layer * shape.n_kv_heads + head];
      int64_t blocks = t.len / size + 1 - t.start / size;
      s.signals->quest_blocks_read[1] += blocks;
      if (selects(s, layer, shape)) blocks = std::min<int64_t>(blocks, s.signals->quest_blocks);
      s.signals->quest_blocks_read[0] += blocks;
    }
  }
  PF_CHECK(!select_ || bounds_.enabled(), "quest without enable_page_bounds");
  PF_CHECK(!sinks_ || rope.sink_cos != nullptr, "re-indexing without angles for the sinks");
  if (select_) selection_.resize(seqs.size() * static_cast<size_t>(shape.n_kv_heads));
  if (sinks_) {
    const size_t heads = static_cast<size_t>(limits_.max_rows) * static_cast<size_t>(shape.n_heads);
    PF_CHECK(sink_q_.ensure(heads * static_cast<size_t>(shape.head_dim)).ok() &&
                 sink_bias_.ensure(heads).ok(),
             "out of memory");
  }
}

void CpuBackend::attention(int layer, std::span<const SeqRows> seqs, BufferId qkv,
                           const AttentionShape& shape, const RopeShape& rope, VectorId q_gamma,
                           VectorId k_gamma, float eps, BufferId out) {
  const int64_t pairs = static_cast<int64_t>(seqs.size()) * shape.n_kv_heads;
  const int group = shape.n_heads / shape.n_kv_heads;
  int64_t rows = 0;
  for (const SeqRows& s : seqs) rows += s.n_rows;
  prepare_step(layer, seqs, shape, rope);
  for_rows(pairs, rows * cols(qkv) / std::max<int64_t>(pairs, 1), [&](int64_t i) {
    const SeqRows& seq = seqs[static_cast<size_t>(i / shape.n_kv_heads)];
    const int head = static_cast<int>(i % shape.n_kv_heads);
    rotate_and_append(layer, seq, head, row(qkv, 0), shape, rope, vector(q_gamma), vector(k_gamma),
                      eps);
    if (select_)
      select_pages_of(layer, seq, head, row(qkv, seq.row) + int64_t{head} * group * shape.head_dim,
                      shape, selection_[static_cast<size_t>(i)]);
  });
  attention_.run(arena_, {.seqs = seqs,
                          .layer = layer,
                          .qkv = row(qkv, 0),
                          .ld = cols(qkv),
                          .shape = shape,
                          .out = row(out, 0),
                          .q_scale = k_scale(layer),
                          .out_scale = v_scale(layer),
                          .sink_q = sinks_ ? sink_q_.data() : nullptr,
                          .sink_bias = sinks_ ? sink_bias_.data() : nullptr,
                          .selection = select_ ? selection_.data() : nullptr});
}

void CpuBackend::logits(std::span<const int32_t> rows, BufferId x, VectorId gamma, float eps,
                        MatrixId head, float* out) {
  const Matrix& m = matrix(head);
  PF_CHECK(static_cast<int>(rows.size()) <= limits_.max_logit_rows);
  for_rows(static_cast<int64_t>(rows.size()), m.n_in, [&](int64_t r) {
    float* normed = inputs_.row(m, r);
    k_.rms_norm(row(x, rows[static_cast<size_t>(r)]), vector(gamma), eps, static_cast<int>(m.n_in),
                normed);
    inputs_.set_row(m, r, normed);
  });
  matmul(static_cast<int>(rows.size()), m, nullptr, false, out, m.n_out);
}

}  // namespace pagefold::cpu

namespace pagefold {

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuBackendOptions& options) {
  if (options.threads < 1) return bad_input("threads must be at least 1, got {}", options.threads);
  PF_ASSIGN(const kernels::Kernels* k, kernels::select_kernels(options.isa));
  return std::make_unique<cpu::CpuBackend>(*k, options);
}

}  // namespace pagefold
