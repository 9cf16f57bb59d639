// What observing costs: attention of a step with and without signals, in turns, by processor time.
// Shape of SmolLM2-135M (30 layers, 3 KV heads, 3 query heads each, head_dim 64), bfloat16, block
// ids permuted, random keys.
//   build/release/bin/signals_bench [threads = 1] [rounds = 15]
// One line a case: milliseconds of the plain step (median), and the median over rounds of observed
// / plain.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "bench/bandwidth.h"

namespace pagefold {
namespace {

constexpr int kHeads = 9, kKvHeads = 3, kDim = 64, kBlock = 16;
// Of the history: the default of scissorhands.
constexpr int kWindow = 400, kWords = (kWindow + 63) / 64, kSegments = 8;

double cpu_ms() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

using bench::median;

// An embedding table, which is how a buffer gets its rows: [64][n_in] random numbers.
class RandomRows final : public MatrixSource {
 public:
  explicit RandomRows(int64_t n_in) : n_in_(n_in) {}
  int64_t n_out() const override { return 64; }
  int64_t n_in() const override { return n_in_; }
  DType stored_dtype() const override { return DType::f32; }
  const QuantSource* quant() const override { return nullptr; }
  void row_f32(int64_t row, float* out) const override {
    std::mt19937 rng(static_cast<uint32_t>(row) + 1);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (int64_t i = 0; i < n_in_; ++i) out[i] = normal(rng);
  }
  void row_quant(int64_t, int8_t*, float*, float*) const override {}

 private:
  int64_t n_in_;
};

class Setup {
 public:
  Setup(int layers, int context, int rows, int threads)
      : layers_(layers), context_(context), rows_(rows) {
    CpuBackendOptions options;
    options.threads = threads;
    options.dtype = DType::f32;
    backend_ = std::move(make_cpu_backend(options).value());
    const int table_blocks = (context + rows + kBlock - 1) / kBlock;
    KvShape kv;
    kv.n_layers = layers;
    kv.n_kv_heads = kKvHeads;
    kv.head_dim = kDim;
    kv.n_blocks = static_cast<uint32_t>(layers * kKvHeads * table_blocks);
    check(backend_->init_kv(kv));
    const int64_t cols = (kHeads + 2 * kKvHeads) * kDim;
    const RandomRows source(cols);
    const MatrixSource* parts[] = {&source};
    table_ = backend_->load_matrix(parts).value();
    StepLimits limits;
    limits.max_rows = std::max(rows, 512);
    limits.max_seqs = 1;
    check(backend_->init_step(limits));
    check(backend_->enable_page_bounds());
    qkv_ = backend_->make_buffer(cols).value();
    out_ = backend_->make_buffer(kHeads * kDim).value();
    cos_.assign(static_cast<size_t>(limits.max_rows * kDim / 2), 1.0f);
    sin_.assign(cos_.size(), 0.0f);
    blocks_.resize(kv.n_blocks);
    for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = static_cast<BlockId>(i);
    std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937(1));
    for (int t = 0; t < layers * kKvHeads; ++t) {
      tables_.push_back({blocks_.data() + t * table_blocks, 0, 0});
      mass_.emplace_back(static_cast<size_t>(context + rows));
      mass_at_.push_back(mass_.back().data());
      bits_.emplace_back(static_cast<size_t>((context + rows) * kWords));
      sums_.emplace_back(static_cast<size_t>((context + rows) * kSegments));
      history_at_.push_back({bits_.back().data(), sums_.back().data(), context + rows, kWindow,
                             kWords, kSegments, (kWindow + kSegments - 1) / kSegments});
    }
    fill();
  }

  // One step of rows_ rows behind `context` slots, always the same one.
  void step(const SeqSignals* signals) {
    std::vector<int32_t> tokens(static_cast<size_t>(rows_));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 64);
    for (auto& t : tables_) t.len = context_;
    run(tokens, signals);
  }
  // Of the step's rows from `first` on.
  Observation mass(MassForm form, int first = 0) const {
    Observation o = rows_from(first);
    o.form = form;
    o.mass = mass_at_.data();
    return o;
  }
  Observation history() const {
    Observation o = rows_from(0);
    o.form = MassForm::probability;
    o.history = history_at_.data();
    return o;
  }

 private:
  Observation rows_from(int first) const {
    Observation o;
    o.first_row = first;
    o.n_rows = rows_ - first;
    o.first_position = context_;
    return o;
  }
  static void check(const Status& s) {
    if (!s.ok()) std::abort();
  }
  void fill() {
    std::mt19937 rng(5);
    for (int at = 0; at < context_; at += 512) {
      std::vector<int32_t> tokens(static_cast<size_t>(std::min(512, context_ - at)));
      for (int32_t& t : tokens) t = static_cast<int32_t>(rng() % 64);
      for (auto& t : tables_) t.len = at;
      // Only the append matters here: a window of one slot.
      run(tokens, nullptr, 1);
    }
  }
  void run(const std::vector<int32_t>& tokens, const SeqSignals* signals, int64_t window = 0) {
    const SeqRows seq{0, static_cast<int>(tokens.size()), tables_.data(), signals};
    const AttentionShape shape{kHeads, kKvHeads, kDim, 0.125f, window};
    const RopeShape rope{kDim, true, cos_.data(), sin_.data()};
    for (int layer = 0; layer < layers_; ++layer) {
      backend_->embed(tokens, table_, 1.0f, qkv_);
      backend_->attention(layer, {&seq, 1}, qkv_, shape, rope, {}, {}, 0, out_);
    }
  }

  int layers_, context_, rows_;
  std::unique_ptr<Backend> backend_;
  MatrixId table_;
  BufferId qkv_, out_;
  std::vector<float> cos_, sin_;
  std::vector<BlockId> blocks_;
  std::vector<TableView> tables_;
  std::vector<std::vector<float>> mass_;
  std::vector<float*> mass_at_;
  std::vector<std::vector<uint64_t>> bits_;
  std::vector<std::vector<float>> sums_;
  std::vector<HistoryArrays> history_at_;
};

void compare(const std::string& name, Setup& setup, int rounds, const SeqSignals& signals) {
  std::vector<double> plain, ratio;
  setup.step(nullptr);
  setup.step(&signals);
  for (int i = 0; i < rounds; ++i) {
    const double a = cpu_ms();
    setup.step(nullptr);
    const double b = cpu_ms();
    setup.step(&signals);
    const double c = cpu_ms();
    plain.push_back(b - a);
    ratio.push_back((c - b) / (b - a));
  }
  fmt::print("{:<36} plain {:9.3f} ms   with {:6.3f}x\n", name, median(plain), median(ratio));
  std::fflush(stdout);
}

void compare(const std::string& name, Setup& setup, int rounds, const Observation& observation) {
  SeqSignals signals;
  signals.observe = &observation;
  compare(name, setup, rounds, signals);
}

void decode(int context, int threads, int rounds) {
  Setup setup(30, context, 1, threads);
  const auto name = [&](const char* what) { return fmt::format("decode {} {}", context, what); };
  compare(name("nothing"), setup, rounds, SeqSignals{});
  compare(name("mass"), setup, rounds, setup.mass(MassForm::probability));
  compare(name("mass squared"), setup, rounds, setup.mass(MassForm::squared));
  compare(name("history"), setup, rounds, setup.history());
  SeqSignals quest;
  quest.quest_blocks = 128;
  compare(name("quest 128 blocks"), setup, rounds, quest);
}

void prefill(int context, int rows, int threads, int rounds) {
  Setup setup(2, context, rows, threads);
  const auto name = [&](const char* what) {
    return fmt::format("prefill {} at {} {}", rows, context, what);
  };
  compare(name("nothing"), setup, rounds, SeqSignals{});
  compare(name("mass, all rows"), setup, rounds, setup.mass(MassForm::probability));
  compare(name("mass squared, all rows"), setup, rounds, setup.mass(MassForm::squared));
  compare(name("mass, last 32"), setup, rounds, setup.mass(MassForm::probability, rows - 32));
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  if (threads < 1 || rounds < 1) return 2;
  for (const int context : {2048, 8192, 32768}) pagefold::decode(context, threads, rounds);
  for (const int context : {0, 2048, 8192, 32768}) pagefold::prefill(context, 512, threads, rounds);
  return 0;
}
