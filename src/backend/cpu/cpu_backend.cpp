#include "backend/cpu/cpu_backend.h"

#include <algorithm>

#include "base/check.h"

namespace pagefold::cpu {
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
  PF_ASSIGN(Matrix m, pack_matrix(parts, {options_.dtype, options_.activations_int8}, pool_));
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
  kv_ = shape;
  return arena_.init({shape.k_dtype, shape.v_dtype, shape.head_dim, shape.block_size},
                     shape.n_blocks);
}

Status CpuBackend::init_step(const StepLimits& limits) {
  limits_ = limits;
  int64_t widest = 0;
  for (const Matrix& m : matrices_) widest = std::max(widest, m.n_in);
  return inputs_.reserve(std::max(limits.max_rows, limits.max_logit_rows), widest);
}

Result<BufferId> CpuBackend::make_buffer(int64_t cols) {
  Buffer b{{}, cols};
  PF_TRY(b.data.ensure(static_cast<size_t>(limits_.max_rows) * static_cast<size_t>(cols)));
  buffers_.push_back(std::move(b));
  return BufferId{static_cast<int32_t>(buffers_.size() - 1)};
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
      inputs_.fill(a, s.input, m.n_in);
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
    kernels::unpack_row(m.segments[0].packed, token, x);
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

void CpuBackend::rotate_and_append(int layer, const SeqRows& seq, int head, float* qkv,
                                   const AttentionShape& shape, const RopeShape& rope,
                                   const float* q_gamma, const float* k_gamma, float eps) {
  const int group = shape.n_heads / shape.n_kv_heads, dim = shape.head_dim, half = rope.rot / 2;
  const int64_t ld = int64_t{shape.n_heads + 2 * shape.n_kv_heads} * dim;
  float* first = qkv + seq.row * ld;
  float* k_rows = first + int64_t{shape.n_heads + head} * dim;
  for (int r = 0; r < seq.n_rows; ++r) {
    const int64_t row = seq.row + r;
    const auto turn = [&](float* h, const float* gamma) {
      if (gamma) k_.rms_norm(h, gamma, eps, dim, h);
      k_.rope(h, rope.cos + row * half, rope.sin + row * half, rope.rot, rope.half_layout);
    };
    for (int g = 0; g < group; ++g) turn(first + r * ld + int64_t{head * group + g} * dim, q_gamma);
    turn(k_rows + r * ld, k_gamma);
  }
  const TableView& table = seq.tables[layer * shape.n_kv_heads + head];
  kernels::KvAppendArgs a;
  a.base = arena_.base();
  a.blocks = table.blocks;
  a.first_slot = table.len;
  a.rows = seq.n_rows;
  a.k = k_rows;
  a.v = k_rows + int64_t{shape.n_kv_heads} * dim;
  a.ldk = a.ldv = ld;
  k_.kv_append(arena_.layout(), a);
}

void CpuBackend::attention(int layer, std::span<const SeqRows> seqs, BufferId qkv,
                           const AttentionShape& shape, const RopeShape& rope, VectorId q_gamma,
                           VectorId k_gamma, float eps, BufferId out) {
  const int64_t pairs = static_cast<int64_t>(seqs.size()) * shape.n_kv_heads;
  int64_t rows = 0;
  for (const SeqRows& s : seqs) rows += s.n_rows;
  for_rows(pairs, rows * cols(qkv) / std::max<int64_t>(pairs, 1), [&](int64_t i) {
    rotate_and_append(layer, seqs[static_cast<size_t>(i / shape.n_kv_heads)],
                      static_cast<int>(i % shape.n_kv_heads), row(qkv, 0), shape, rope,
                      vector(q_gamma), vector(k_gamma), eps);
  });
  attention_.run(arena_, {seqs, layer, row(qkv, 0), cols(qkv), shape, row(out, 0)});
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
