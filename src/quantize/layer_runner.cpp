#include "quantize/layer_runner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/backend.h"
#include "model/rope.h"

namespace pagefold {
namespace {

constexpr int kChunk = 512, kBlockSize = 16;

class HostMatrix final : public MatrixSource {
 public:
  explicit HostMatrix(const Matrix& m) : m_(m) {}
  int64_t n_out() const override { return m_.rows; }
  int64_t n_in() const override { return m_.cols; }
  DType stored_dtype() const override { return DType::f32; }
  const QuantSource* quant() const override { return nullptr; }
  void row_f32(int64_t row, float* out) const override { std::copy_n(m_.row(row), m_.cols, out); }
  void row_quant(int64_t, int8_t*, float*, float*) const override {}

 private:
  const Matrix& m_;
};

// The layer on a backend of its own.
class Run {
 public:
  Run(const ModelConfig& config, int index, const InputTap& tap)
      : c_(config),
        s_(config.shape),
        index_(index),
        tap_(tap),
        rope_(rope_frequencies(config.rope)) {}

  Status load(HostLayer& l, const std::string& isa, int threads, int64_t longest) {
    PF_ASSIGN(backend_, make_cpu_backend({.isa = isa,
                                          .threads = threads,
                                          .dtype = DType::f32,
                                          .activations = Activations::bits16}));
    PF_ASSIGN(qkv_w_, matrix({&l.q, &l.k, &l.v}));
    PF_ASSIGN(out_w_, matrix({&l.o}));
    PF_ASSIGN(gate_up_w_, matrix({&l.gate, &l.up}));
    PF_ASSIGN(down_w_, matrix({&l.down}));
    std::vector<float> bias = l.q_bias;
    bias.insert(bias.end(), l.k_bias.begin(), l.k_bias.end());
    bias.insert(bias.end(), l.v_bias.begin(), l.v_bias.end());
    PF_TRY(vector(bias, qkv_bias_));
    PF_TRY(vector(l.o_bias, out_bias_));
    PF_TRY(vector(l.input_norm, input_norm_));
    PF_TRY(vector(l.post_norm, post_norm_));
    PF_TRY(vector(l.q_norm, q_norm_));
    PF_TRY(vector(l.k_norm, k_norm_));
    input_gamma_ = l.input_norm;
    post_gamma_ = l.post_norm;
    return prepare(longest);
  }

  // One window's next rows; x: [rows][hidden], in place.
  void step(int64_t position, int rows, float* x) {
    const float eps = static_cast<float>(c_.rms_eps);
    std::vector<int64_t> positions(static_cast<size_t>(rows));
    std::iota(positions.begin(), positions.end(), position);
    rope_.prepare(positions);
    for (TableView& v : views_) v.len = position;
    const SeqRows seq{0, rows, views_.data()};
    const AttentionShape attention{.n_heads = s_.n_heads,
                                   .n_kv_heads = s_.n_kv_heads,
                                   .head_dim = s_.head_dim,
                                   .scale = 1.0f / std::sqrt(static_cast<float>(s_.head_dim)),
                                   .window = s_.layer_window[static_cast<size_t>(index_)]};
    const RopeShape rope{.rot = c_.rope.rot,
                         .half_layout = true,  // as Hugging Face folders have it
                         .cos = rope_.cos(),
                         .sin = rope_.sin()};
    tap_normed(InputPoint::attention, rows, x, input_gamma_);
    backend_->write_rows(hidden_, rows, x);
    backend_->norm_linear(rows, hidden_, input_norm_, eps, qkv_w_, qkv_bias_, qkv_);
    backend_->attention(0, {&seq, 1}, qkv_, attention, rope, q_norm_, k_norm_, eps, heads_);
    tap_buffer(InputPoint::attention_out, rows, heads_, int64_t{s_.n_heads} * s_.head_dim);
    backend_->linear_add(rows, heads_, out_w_, out_bias_, hidden_);
    backend_->read_rows(hidden_, rows, x);
    tap_normed(InputPoint::ffn, rows, x, post_gamma_);
    backend_->norm_linear(rows, hidden_, post_norm_, eps, gate_up_w_, VectorId{}, gate_up_);
    tap_gated(rows);
    backend_->glu_linear_add(rows, gate_up_, down_w_, hidden_);
    backend_->read_rows(hidden_, rows, x);
  }

 private:
  Result<MatrixId> matrix(std::initializer_list<const Matrix*> parts) {
    std::vector<HostMatrix> sources;
    for (const Matrix* m : parts) sources.emplace_back(*m);
    std::vector<const MatrixSource*> list;
    for (const HostMatrix& s : sources) list.push_back(&s);
    return backend_->load_matrix(list);
  }
  Status vector(const std::vector<float>& values, VectorId& id) {
    if (values.empty()) return ok_status();
    PF_ASSIGN(id, backend_->load_vector(values));
    return ok_status();
  }

  Status prepare(int64_t longest) {
    const int64_t blocks = (longest + kBlockSize - 1) / kBlockSize;
    BlockId next = 0;
    for (int h = 0; h < s_.n_kv_heads; ++h) {
      ids_.emplace_back(static_cast<size_t>(blocks));
      std::iota(ids_.back().begin(), ids_.back().end(), next);
      next += static_cast<BlockId>(blocks);
    }
    for (const auto& ids : ids_) views_.push_back({ids.data(), 0, 0, nullptr});
    PF_TRY(backend_->init_kv({1, s_.n_kv_heads, s_.head_dim, kBlockSize, DType::f32, DType::f32,
                              static_cast<uint32_t>(next)}));
    PF_TRY(backend_->init_step({kChunk, 1, 1}));
    PF_ASSIGN(hidden_, backend_->make_buffer(s_.hidden));
    PF_ASSIGN(qkv_, backend_->make_buffer(int64_t{s_.n_heads + 2 * s_.n_kv_heads} * s_.head_dim));
    PF_ASSIGN(heads_, backend_->make_buffer(int64_t{s_.n_heads} * s_.head_dim));
    PF_ASSIGN(gate_up_, backend_->make_buffer(2 * c_.ffn));
    return ok_status();
  }

  void tap_normed(InputPoint point, int rows, const float* x, const std::vector<float>& gamma) {
    if (!tap_) return;
    scratch_.resize(static_cast<size_t>(rows * s_.hidden));
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x + r * s_.hidden;
      float* out = scratch_.data() + r * s_.hidden;
      double sum = 0;
      for (int64_t i = 0; i < s_.hidden; ++i) sum += double{row[i]} * double{row[i]};
      const auto scale =
          static_cast<float>(1 / std::sqrt(sum / static_cast<double>(s_.hidden) + c_.rms_eps));
      for (int64_t i = 0; i < s_.hidden; ++i)
        out[i] = row[i] * scale * gamma[static_cast<size_t>(i)];
    }
    tap_(point, rows, s_.hidden, scratch_.data());
  }
  void tap_buffer(InputPoint point, int rows, BufferId from, int64_t width) {
    if (!tap_) return;
    scratch_.resize(static_cast<size_t>(rows * width));
    backend_->read_rows(from, rows, scratch_.data());
    tap_(point, rows, width, scratch_.data());
  }
  void tap_gated(int rows) {
    if (!tap_) return;
    const int64_t n = c_.ffn;
    scratch_.resize(static_cast<size_t>(2 * rows * n));
    backend_->read_rows(gate_up_, rows, scratch_.data());
    for (int64_t r = 0; r < rows; ++r) {
      const float *gate = scratch_.data() + 2 * r * n, *up = gate + n;
      float* out = scratch_.data() + r * n;  // never ahead of what is still to be read
      for (int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    }
    tap_(InputPoint::down, rows, n, scratch_.data());
  }

  const ModelConfig& c_;
  const ModelShape& s_;
  int index_;
  const InputTap& tap_;
  RopeTable rope_;
  std::unique_ptr<Backend> backend_;
  MatrixId qkv_w_, out_w_, gate_up_w_, down_w_;
  VectorId qkv_bias_, out_bias_, input_norm_, post_norm_, q_norm_, k_norm_;
  BufferId hidden_, qkv_, heads_, gate_up_;
  std::vector<float> input_gamma_, post_gamma_, scratch_;
  std::vector<std::vector<BlockId>> ids_;
  std::vector<TableView> views_;
};

}  // namespace

Status LayerRunner::run(int index, HostLayer& layer, ResidualStream& a, const InputTap& tap) const {
  if (a.windows.empty()) return ok_status();
  Run run(config_, index, tap);
  PF_TRY(run.load(layer, isa_, threads_, *std::max_element(a.windows.begin(), a.windows.end())));
  float* x = a.x.data();
  for (const int64_t window : a.windows) {
    for (int64_t at = 0; at < window; at += kChunk) {
      const auto rows = static_cast<int>(std::min<int64_t>(kChunk, window - at));
      run.step(at, rows, x);
      x += rows * a.hidden;
    }
  }
  return ok_status();
}

}  // namespace pagefold
