// Runs a model over a prompt in chosen chunks, one sequence, without an engine.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "model/load.h"

namespace pagefold::testing {

// A folder of its own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "pagefold_model_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Precision {
  DType dtype = DType::f32;
  KvFormat kv = DType::f32;
  bool int8 = false;
};

inline std::vector<std::string> all_isas() {
  std::vector<std::string> out;
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    if (make_cpu_backend({.isa = isa}).ok()) out.emplace_back(isa);
  }
  return out;
}

class ModelRunner {
 public:
  static constexpr int kBlock = 16;

  ModelRunner(const ModelFiles& files, int64_t tokens, Precision p = {},
              const std::string& isa = "auto", int threads = 1) {
    NetworkOptions o;
    o.backend = {.isa = isa,
                 .threads = threads,
                 .dtype = p.dtype,
                 .activations = p.int8 ? Activations::int8 : Activations::bits16};
    auto network = load_network(files, o);
    if (!network.ok()) throw std::runtime_error(message_of(network.status()));
    start(*std::move(network), tokens, p.kv);
  }
  ModelRunner(std::unique_ptr<TransformerModel> model, int64_t tokens, const KvFormat& kv) {
    start(std::move(model), tokens, kv);
  }

  // Logits of all rows, [tokens][vocab]; the prompt goes in chunks of `chunk`.
  std::vector<float> run(const std::vector<int32_t>& tokens, int64_t chunk) {
    for (TableView& v : views_) v.len = 0;
    const int64_t n = static_cast<int64_t>(tokens.size()), vocab = model_->shape().vocab_size;
    std::vector<float> logits(static_cast<size_t>(n * vocab), NAN);
    for (int64_t at = 0; at < n; at += chunk) {
      const int64_t rows = std::min(chunk, n - at);
      step({tokens.data() + at, static_cast<size_t>(rows)}, at, logits.data() + at * vocab);
    }
    return logits;
  }
  // Appends rows; logits: [rows][vocab].
  void step(std::span<const int32_t> tokens, int64_t position, float* logits) {
    std::vector<int64_t> positions(tokens.size());
    std::vector<int32_t> wanted(tokens.size());
    std::iota(positions.begin(), positions.end(), position);
    std::iota(wanted.begin(), wanted.end(), 0);
    const SeqRows seq{0, static_cast<int>(tokens.size()), views_.data()};
    model_->forward({tokens, positions, {&seq, 1}, wanted}, logits);
    for (TableView& v : views_) v.len += static_cast<int64_t>(tokens.size());
  }
  TransformerModel& model() { return *model_; }

 private:
  void start(std::unique_ptr<TransformerModel> model, int64_t tokens, const KvFormat& format) {
    model_ = std::move(model);
    const ModelShape& s = model_->shape();
    const size_t tables = static_cast<size_t>(s.n_layers) * static_cast<size_t>(s.n_kv_heads);
    const auto blocks = static_cast<size_t>((tokens + kBlock - 1) / kBlock);
    // No two neighbours of a table are neighbours in the pool.
    std::vector<BlockId> ids(tables * blocks);
    for (size_t t = 0; t < tables; ++t) {
      for (size_t b = 0; b < blocks; ++b)
        ids[t * blocks + b] = static_cast<BlockId>((blocks - 1 - b) * tables + t);
    }
    ids_ = std::move(ids);
    for (size_t t = 0; t < tables; ++t) views_.push_back({ids_.data() + t * blocks, 0, 0});
    const KvShape kv = kv_shape(s, format, kBlock, static_cast<uint32_t>(ids_.size()));
    const int rows = static_cast<int>(tokens);
    const Status status = model_->init(kv, {rows, 1, rows});
    if (!status.ok()) throw std::runtime_error(message_of(status));
  }

  std::unique_ptr<TransformerModel> model_;
  std::vector<BlockId> ids_;
  std::vector<TableView> views_;
};

// Mean Kullback-Leibler divergence of rows, in nats.
inline double mean_kld(const std::vector<float>& reference, const std::vector<float>& ours,
                       int64_t vocab) {
  const auto log_sum = [&](const float* x) {
    double sum = 0;
    for (int64_t i = 0; i < vocab; ++i) sum += std::exp(double{x[i]});
    return std::log(sum);
  };
  const int64_t rows = static_cast<int64_t>(reference.size()) / vocab;
  double kld = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float *p = reference.data() + r * vocab, *q = ours.data() + r * vocab;
    const double lp = log_sum(p), lq = log_sum(q);
    for (int64_t i = 0; i < vocab; ++i)
      kld += std::exp(double{p[i]} - lp) * ((double{p[i]} - lp) - (double{q[i]} - lq));
  }
  return kld / static_cast<double>(rows);
}

}  // namespace pagefold::testing
