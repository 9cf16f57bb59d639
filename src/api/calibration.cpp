#include "api/calibration.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "base/random.h"

namespace pagefold {
namespace {

constexpr int kBlockSize = 16;
constexpr int kChunk = 512;  // rows of a step
constexpr int64_t kTextTokens = 32768, kOwnTokens = 8192, kFewestTokens = 16;

// Sums of one sequence. Sequences of a step run in parallel, so each has its own.
struct Sums {
  explicit Sums(size_t n) : re(n), im(n), abs(n) {}
  std::vector<double> re, im, abs;
  void add(const Sums& o) {
    for (size_t i = 0; i < re.size(); ++i) {
      re[i] += o.re[i];
      im[i] += o.im[i];
      abs[i] += o.abs[i];
    }
  }
};

// Full tables of one sequence; a new text begins by setting the lengths to 0.
struct Sequence {
  Sequence(int n_tables, int64_t slots, BlockId& next, size_t n_sums) : sums(n_sums) {
    const auto blocks = static_cast<size_t>((slots + kBlockSize - 1) / kBlockSize);
    for (int t = 0; t < n_tables; ++t) {
      ids.emplace_back(blocks);
      std::iota(ids.back().begin(), ids.back().end(), next);
      next += static_cast<BlockId>(blocks);
    }
    for (const auto& table : ids) views.push_back({table.data(), 0, 0, nullptr});
  }
  void grow(int64_t rows) {
    for (TableView& v : views) v.len += rows;
    length += rows;
  }
  void restart() {
    for (TableView& v : views) v.len = 0;
    length = 0;
  }
  std::vector<std::vector<BlockId>> ids;
  std::vector<TableView> views;
  int64_t length = 0;
  Sums sums;
};

// What is recorded of a step: the queries of all its rows.
struct Observed {
  Observed(Sums& sums, int64_t first_position, int rows)
      : into{rows, sums.re.data(), sums.im.data(), sums.abs.data()} {
    observation.first_position = first_position;
    observation.stats_rows = rows;
    observation.stats = &into;
    signals.observe = &observation;
  }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;
  QuerySums into;
  Observation observation;
  SeqSignals signals;
};

class Calibrator {
 public:
  Calibrator(LoadedModel& model, const CalibrationOptions& options)
      : model_(model), shape_(model.network->shape()), options_(options) {}

  Result<CalibrationStats> run() {
    if (shape_.inv_freq.empty()) {
      return unsupported("calibrate: the model has no rotary positions, which triattention scores");
    }
    if (options_.text.empty()) {
      PF_TRY(write_own());
    } else {
      PF_TRY(read_text());
    }
    Sums total(n_sums());
    for (const Sequence& s : sequences_) total.add(s.sums);
    QuerySums sums{rows_, total.re.data(), total.im.data(), total.abs.data()};
    return calibration_from_sums(kv_model_of(shape_, kBlockSize), sums, model_.name);
  }

 private:
  size_t n_sums() const {
    return static_cast<size_t>(shape_.n_layers) * static_cast<size_t>(shape_.n_heads) *
           shape_.inv_freq.size();
  }

  Status prepare(int n_sequences, int64_t slots, int logit_rows) {
    BlockId next = 0;
    for (int i = 0; i < n_sequences; ++i)
      sequences_.emplace_back(shape_.n_layers * shape_.n_kv_heads, slots, next, n_sums());
    return model_.network->init(kv_shape(shape_, model_.kv, kBlockSize, next),
                                {kChunk, n_sequences, std::max(logit_rows, 1)});
  }

  void report(int64_t total) const {
    if (options_.progress) options_.progress(rows_, total);
  }

  Status read_text() {
    const std::vector<int32_t> all = model_.tokenizer->encode(options_.text, false, false);
    const int64_t most = options_.tokens > 0 ? options_.tokens : kTextTokens;
    const auto n = std::min<int64_t>(most, static_cast<int64_t>(all.size()));
    if (n < kFewestTokens) {
      return bad_input(
          "calibrate: the text has {} tokens; at least {} are needed, and thousands are better", n,
          kFewestTokens);
    }
    const int64_t window = std::min({options_.window, shape_.context_length, n});
    PF_TRY(prepare(1, window, 0));
    for (int64_t at = 0; at < n;) {
      Sequence& s = sequences_[0];
      if (s.length == window) s.restart();
      const int64_t rows = std::min({int64_t{kChunk}, n - at, window - s.length});
      std::vector<int64_t> positions(static_cast<size_t>(rows));
      std::iota(positions.begin(), positions.end(), s.length);
      const Observed observed(s.sums, s.length, static_cast<int>(rows));
      const SeqRows seq{0, static_cast<int>(rows), s.views.data(), &observed.signals};
      model_.network->forward(
          {std::span(all).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)),
           positions,
           {&seq, 1},
           {}},
          nullptr);
      s.grow(rows);
      at += rows;
      rows_ += rows;
      report(n);
    }
    return ok_status();
  }

  // Sampling at temperature 1: the text that the model finds likely is the text it will meet.
  int32_t sample(const float* logits, double u) {
    const auto n = static_cast<size_t>(shape_.vocab_size);
    const float most = *std::max_element(logits, logits + n);
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += std::exp(double{logits[i]} - double{most});
    double left = u * sum;
    for (size_t i = 0; i < n; ++i) {
      left -= std::exp(double{logits[i]} - double{most});
      if (left < 0) return static_cast<int32_t>(i);
    }
    return static_cast<int32_t>(n - 1);
  }

  // A text begins with the model's own first token; without one, with an end token.
  int32_t first_token() const {
    if (model_.tokenizer->bos() >= 0) return model_.tokenizer->bos();
    return model_.eos_token_ids.empty() ? 0 : model_.eos_token_ids[0];
  }
  bool ends(int32_t token) const {
    return std::find(model_.eos_token_ids.begin(), model_.eos_token_ids.end(), token) !=
           model_.eos_token_ids.end();
  }

  Status write_own() {
    const int64_t total = options_.tokens > 0 ? options_.tokens : kOwnTokens;
    const int n =
        static_cast<int>(std::clamp<int64_t>(total / kFewestTokens, 1, options_.n_sequences));
    const int64_t longest = std::min({(total + n - 1) / n, options_.window, shape_.context_length});
    PF_TRY(prepare(n, longest, n));
    std::vector<float> logits(static_cast<size_t>(n) * static_cast<size_t>(shape_.vocab_size));
    std::vector<int32_t> tokens(static_cast<size_t>(n), first_token()),
        rows(static_cast<size_t>(n));
    std::iota(rows.begin(), rows.end(), 0);
    for (uint64_t step = 0; rows_ < total; ++step) {
      std::vector<int64_t> positions;
      std::deque<Observed> observed;
      std::vector<SeqRows> seqs;
      for (Sequence& s : sequences_) observed.emplace_back(s.sums, s.length, 1);
      for (size_t i = 0; i < sequences_.size(); ++i) {
        positions.push_back(sequences_[i].length);
        seqs.push_back({static_cast<int>(i), 1, sequences_[i].views.data(), &observed[i].signals});
      }
      model_.network->forward({tokens, positions, seqs, rows}, logits.data());
      for (size_t i = 0; i < sequences_.size(); ++i) {
        const double u = uniform01(options_.seed, step * sequences_.size() + i);
        const int32_t next = sample(logits.data() + i * static_cast<size_t>(shape_.vocab_size), u);
        sequences_[i].grow(1);
        if (ends(next) || sequences_[i].length == longest) {
          sequences_[i].restart();
          tokens[i] = first_token();
        } else {
          tokens[i] = next;
        }
      }
      rows_ += n;
      report(total);
    }
    return ok_status();
  }

  LoadedModel& model_;
  const ModelShape& shape_;
  const CalibrationOptions& options_;
  std::vector<Sequence> sequences_;
  int64_t rows_ = 0;
};

}  // namespace

KvModel kv_model_of(const ModelShape& shape, int block_size) {
  KvModel m;
  m.n_layers = shape.n_layers;
  m.n_heads = shape.n_heads;
  m.n_kv_heads = shape.n_kv_heads;
  m.head_dim = shape.head_dim;
  m.block_size = block_size;
  m.layer_window = shape.layer_window;
  m.context_length = shape.context_length;
  m.inv_freq = shape.inv_freq;
  m.attention_scaling = shape.rope_magnitude;
  return m;
}

Result<CalibrationStats> calibrate(LoadedModel& model, const CalibrationOptions& options) {
  return Calibrator(model, options).run();
}

}  // namespace pagefold
