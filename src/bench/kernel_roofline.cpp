#include "bench/kernel_roofline.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/backend.h"
#include "base/kv_format.h"
#include "bench/bandwidth.h"
#include "kernels/kernels.h"

namespace pagefold::bench {
namespace {

using kernels::InputKind;
using kernels::Kernels;

constexpr int kSlotsOfBlock = 16;
constexpr int64_t kRun = 32;      // blocks of a table that follow each other
constexpr double kMostOps = 4e9;  // of a call: a prompt's rows need no matrices beyond the caches
constexpr DType kCacheTypes[] = {DType::f32,      DType::f16,  DType::bf16, DType::fp8_e4m3,
                                 DType::fp8_e5m2, DType::int8, DType::int4};

template <class Work>
double median_ms(int repeat, const Work& work) {
  work();
  std::vector<double> all;
  for (int i = 0; i < repeat; ++i) {
    const double start = seconds();
    work();
    all.push_back((seconds() - start) * 1e3);
  }
  return median(all);
}

// Integers run as integers; 16-bit and float32 inputs on whichever of the two units is faster.
double peak_of(const Peaks& p, bool integers, bool sixteen) {
  if (integers) return std::max(p.int8.wall, p.f32.wall);
  return sixteen ? std::max(p.f32.wall, p.bf16.wall) : p.f32.wall;
}

int copies_for(const KernelOptions& o, double bytes, double ops) {
  const double by_bytes = std::ceil(static_cast<double>(o.bytes) / bytes);
  return static_cast<int>(std::max(1.0, std::min(by_bytes, std::floor(kMostOps / ops))));
}

void add_matmuls(const KernelOptions& o, const Kernels& k, ThreadPool& pool, KernelTimes& out) {
  double weights = 0;
  bool whole = true;  // quantised kinds have whole groups
  for (const MatrixDims& dims : o.matrices) {
    weights += static_cast<double>(dims.first) * dims.second;
    whole = whole && dims.second % 32 == 0;
  }
  if (o.matrices.empty()) return;
  for (const MatrixFormat& format : matrix_formats()) {
    if (format.kind >= kernels::PackKind::w8 && !whole) continue;
    for (const int rows : o.rows) {
      const auto bytes = static_cast<double>(MadeMatrices::bytes_of(format, o.matrices));
      MadeMatrices made(format, o.matrices, copies_for(o, bytes, 2 * weights * rows), rows, k);
      KernelRow row;
      row.kernel = "matmul";
      row.type = format.in_words;
      row.rows = rows;
      row.bytes = made.bytes();
      row.ops = made.ops();
      const bool integers = format.input == InputKind::i8 || format.input == InputKind::i8x2;
      row.peak_gops = peak_of(out.peaks, integers, format.kind == kernels::PackKind::bf16);
      row.ms = median_ms(o.repeat, [&] { made.run(k, pool); });
      out.rows.push_back(row);
    }
  }
}

// One sequence of `context` cached slots in as many layers as fill the memory.
class MadeCache {
 public:
  MadeCache(const KernelOptions& o, DType type, int rows, int layers)
      : o_(o), type_(type), rows_(rows), layers_(layers) {}

  Status prepare() {
    PF_ASSIGN(backend_, make_cpu_backend({o_.isa, o_.threads, DType::bf16, {}}));
    const int64_t slots = o_.context + rows_;
    const int64_t a_table = (slots + kSlotsOfBlock - 1) / kSlotsOfBlock;
    const int tables = layers_ * o_.n_kv_heads;
    if (a_table * tables > int64_t{kNoBlock} - 1)
      return bad_input("{} slots in {} tables are too many", slots, tables);
    const KvFormat format(type_);
    KvShape kv{layers_,
               o_.n_kv_heads,
               o_.head_dim,
               kSlotsOfBlock,
               type_,
               type_,
               static_cast<uint32_t>(a_table * tables)};
    kv.hadamard_keys = format.hadamard_keys;
    PF_TRY(backend_->init_kv(kv));
    blocks_.resize(kv.n_blocks);
    // Runs of the tables in turn, as the engine hands blocks out while it reads a prompt in chunks.
    BlockId next = 0;
    for (int64_t first = 0; first < a_table; first += kRun) {
      for (int t = 0; t < tables; ++t) {
        for (int64_t j = first; j < std::min(first + kRun, a_table); ++j)
          blocks_[static_cast<size_t>(t * a_table + j)] = next++;
      }
    }
    PF_TRY(backend_->blocks_taken(blocks_));
    for (int t = 0; t < tables; ++t)
      tables_.push_back({blocks_.data() + t * a_table, o_.context, 0, nullptr});
    PF_TRY(backend_->init_step({rows_, 1, 1}));
    PF_ASSIGN(qkv_, backend_->make_buffer(columns()));
    PF_ASSIGN(out_, backend_->make_buffer(int64_t{o_.n_heads} * o_.head_dim));
    // No rotation: rows are rotated in place again and again, and must stay what they are.
    cos_.assign(static_cast<size_t>(rows_) * static_cast<size_t>(o_.head_dim), 1.0f);
    sin_.assign(cos_.size(), 0.0f);
    input_.resize(static_cast<size_t>(rows_ * columns()));
    for (size_t i = 0; i < input_.size(); ++i) input_[i] = std::sin(static_cast<float>(i % 1009));
    backend_->write_rows(qkv_, rows_, input_.data());
    return ok_status();
  }

  void run() {
    const SeqRows seq{0, rows_, tables_.data(), nullptr};
    AttentionShape shape{o_.n_heads, o_.n_kv_heads, o_.head_dim, 0.125f, 0};
    RopeShape rope;
    rope.rot = o_.head_dim / 2 * 2;
    rope.cos = cos_.data();
    rope.sin = sin_.data();
    for (int layer = 0; layer < layers_; ++layer)
      backend_->attention(layer, {&seq, 1}, qkv_, shape, rope, {}, {}, 1e-5f, out_);
  }

  // Keys and values of all slots, each once.
  double bytes() const {
    return static_cast<double>(KvFormat(type_).slot_bytes(o_.head_dim)) * o_.n_kv_heads *
           static_cast<double>(o_.context + rows_) * layers_;
  }
  // Two products of head_dim a slot that a row sees, of every head.
  double ops() const {
    const auto rows = static_cast<double>(rows_);
    const double seen = rows * static_cast<double>(o_.context) + rows * (rows + 1) / 2;
    return 4.0 * o_.n_heads * o_.head_dim * seen * layers_;
  }

 private:
  int64_t columns() const { return int64_t{o_.n_heads + 2 * o_.n_kv_heads} * o_.head_dim; }

  const KernelOptions& o_;
  const DType type_;
  const int rows_, layers_;
  std::unique_ptr<Backend> backend_;
  std::vector<BlockId> blocks_;
  std::vector<TableView> tables_;
  BufferId qkv_, out_;
  std::vector<float> cos_, sin_, input_;
};

Status add_attention(const KernelOptions& o, KernelTimes& out) {
  for (const DType type : kCacheTypes) {
    for (const int rows : {1, o.rows.back()}) {
      const MadeCache one(o, type, rows, 1);
      MadeCache cache(o, type, rows, copies_for(o, one.bytes(), one.ops()));
      PF_TRY(cache.prepare());
      KernelRow row;
      row.kernel = rows == 1 ? "attention, a token" : "attention, a prompt";
      row.type = dtype_name(type);
      row.rows = rows;
      row.context = o.context;
      row.bytes = cache.bytes();
      row.ops = cache.ops();
      row.peak_gops = peak_of(out.peaks, dtype_bits(type) <= 8 && !dtype_is_fp8(type),
                              type == DType::bf16 || dtype_is_fp8(type));
      row.ms = median_ms(o.repeat, [&] { cache.run(); });
      out.rows.push_back(row);
    }
  }
  return ok_status();
}

// What lies between the products: one call a row, on all threads, over rows that stay in the
// caches.
class Elements {
 public:
  Elements(const KernelOptions& o, ThreadPool& pool, KernelTimes& out)
      : o_(o), pool_(pool), out_(out) {
    width_ = (std::max({o.hidden, o.ffn, o.n_heads * o.head_dim}) + 31) / 32 * 32;
    rows_ = std::clamp<int64_t>(kCachedBytes / (width_ * 16), 1, 64) * pool.size();
    const auto n = static_cast<size_t>(rows_ * width_);
    x_.assign(n, 0.5f);
    y_.assign(n, 0.25f);
    z_.assign(n, 0);
    half_.resize(n);
  }
  int64_t rows() const { return rows_; }
  float* x(int64_t r) { return x_.data() + r * width_; }
  float* y(int64_t r) { return y_.data() + r * width_; }
  float* z(int64_t r) { return z_.data() + r * width_; }
  uint16_t* half(int64_t r) { return half_.data() + r * width_; }

  // bytes, ops: of a row.
  template <class Work>
  void add(const char* kernel, double bytes, double ops, const Work& work) {
    KernelRow row;
    row.kernel = kernel;
    row.type = "float32";
    row.rows = rows_ * kPasses;
    row.bytes = bytes * static_cast<double>(row.rows);
    row.ops = ops * static_cast<double>(row.rows);
    row.peak_gops = out_.peaks.f32.wall;
    row.cached = true;
    row.ms = median_ms(o_.repeat, [&] {
      pool_.run([&](int t, int n) {
        const Range mine = share_of(rows_, t, n);
        for (int pass = 0; pass < kPasses; ++pass) {
          for (int64_t r = mine.begin; r < mine.end; ++r) work(r);
        }
      });
    });
    out_.rows.push_back(row);
  }

 private:
  static constexpr int64_t kCachedBytes = 512 << 10;  // of a thread's rows
  static constexpr int kPasses = 32;
  const KernelOptions& o_;
  ThreadPool& pool_;
  KernelTimes& out_;
  int64_t rows_ = 0, width_ = 0;
  std::vector<float> x_, y_, z_;
  std::vector<uint16_t> half_;
};

void add_elements(const KernelOptions& o, const Kernels& k, ThreadPool& pool, KernelTimes& out) {
  Elements e(o, pool, out);
  const int hidden = o.hidden / 32 * 32, dim = o.head_dim, heads = o.n_heads;
  if (hidden > 0) {
    e.add("rms_norm", 12.0 * hidden, 4.0 * hidden,
          [&](int64_t r) { k.rms_norm(e.x(r), e.y(0), 1e-5f, hidden, e.z(r)); });
    e.add("to_bf16", 6.0 * hidden, hidden,
          [&](int64_t r) { k.to_bf16(e.x(r), hidden, e.half(r)); });
    std::vector<float> scales(static_cast<size_t>(e.rows() * hidden / 32));
    std::vector<int32_t> sums(scales.size() * 2);
    std::vector<int8_t> q(scales.size() * 32);
    e.add("quantize_rows", 4.0 * hidden + hidden * 1.375, 4.0 * hidden, [&](int64_t r) {
      const int64_t at = r * hidden;
      k.quantize_rows(e.x(r), hidden, 1, hidden,
                      {q.data() + at, scales.data() + at / 32, sums.data() + at / 16}, nullptr);
    });
  }
  if (o.ffn > 0) {
    // An exponential counts as one operation.
    e.add("silu_mul", 12.0 * o.ffn, 5.0 * o.ffn,
          [&](int64_t r) { k.silu_mul(e.x(r), e.y(r), o.ffn, e.z(r)); });
  }
  const double all_heads = static_cast<double>(heads) * dim;
  const std::vector<float> cos(static_cast<size_t>(dim), 1.0f), sin(cos.size(), 0.0f);
  e.add("rope", 8 * all_heads, 3 * all_heads, [&](int64_t r) {
    for (int h = 0; h < heads; ++h)
      k.rope(e.x(r) + h * dim, cos.data(), sin.data(), dim / 2 * 2, true);
  });
  e.add("hadamard", 8 * all_heads, all_heads * std::log2(dim), [&](int64_t r) {
    for (int h = 0; h < heads; ++h) k.hadamard(e.x(r) + h * dim, dim);
  });
}

}  // namespace

Result<KernelTimes> measure_kernels(const KernelOptions& o) {
  PF_ASSIGN(const Kernels* k, kernels::select_kernels(o.isa));
  KernelTimes out;
  out.isa = k->name;
  ThreadPool pool(o.threads);
  out.peaks = measure_peaks(pool, k->name);
  PF_TRY(add_attention(o, out));
  add_matmuls(o, *k, pool, out);
  add_elements(o, *k, pool, out);
  return out;
}

}  // namespace pagefold::bench
