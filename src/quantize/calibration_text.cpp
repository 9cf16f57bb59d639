#include "quantize/calibration_text.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "api/gguf_text.h"
#include "api/hf_text.h"
#include "api/loaded_model.h"
#include "base/random.h"
#include "model/load.h"

namespace pagefold {
namespace {

constexpr int64_t kFewestTokens = 64;
constexpr int kSlotsPerBlock = 16, kMostTexts = 16;

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& model) {
  PF_ASSIGN(const ModelFiles files, open_model(model));
  if (files.gguf) {
    PF_ASSIGN(GgufTokenizerSpec spec, gguf_tokenizer_spec(*files.gguf));
    return tokenizer_from_gguf(std::move(spec));
  }
  PF_ASSIGN(const HfText text, read_hf_text(files.path));
  return tokenizer_from_json(text.tokenizer_json, text.tokenizer_config);
}

std::vector<std::vector<int32_t>> windows_of(std::span<const int32_t> tokens, int64_t window) {
  std::vector<std::vector<int32_t>> out;
  const auto n = static_cast<size_t>(window);
  for (size_t at = 0; at < tokens.size(); at += n) {
    const auto part = tokens.subspan(at, std::min(n, tokens.size() - at));
    out.emplace_back(part.begin(), part.end());
  }
  return out;
}

// Texts that a model writes side by side, each in a full cache of its own.
class Writer {
 public:
  Writer(LoadedModel& model, uint64_t seed)
      : model_(model), shape_(model.network->shape()), seed_(seed) {}

  Status prepare(int n, int64_t longest) {
    n_ = n;
    longest_ = longest;
    BlockId next = 0;
    const auto blocks = static_cast<size_t>((longest + kSlotsPerBlock - 1) / kSlotsPerBlock);
    for (int i = 0; i < n * shape_.n_layers * shape_.n_kv_heads; ++i) {
      ids_.emplace_back(blocks);
      std::iota(ids_.back().begin(), ids_.back().end(), next);
      next += static_cast<BlockId>(blocks);
    }
    for (const auto& ids : ids_) views_.push_back({ids.data(), 0, 0, nullptr});
    texts_.assign(static_cast<size_t>(n), {{first_token()}});
    return model_.network->init(kv_shape(shape_, model_.kv, kSlotsPerBlock, next), {n, n, n});
  }

  // One token more for each.
  void step(uint64_t index) {
    const auto n = static_cast<size_t>(n_);
    const size_t tables = views_.size() / n;
    std::vector<int32_t> tokens(n), rows(n);
    std::vector<int64_t> positions(n);
    std::vector<SeqRows> seqs(n);
    for (size_t i = 0; i < n; ++i) {
      const std::vector<int32_t>& text = texts_[i].back();
      tokens[i] = text.back();
      positions[i] = static_cast<int64_t>(text.size()) - 1;
      rows[i] = static_cast<int32_t>(i);
      seqs[i] = {static_cast<int>(i), 1, views_.data() + i * tables};
    }
    logits_.resize(n * static_cast<size_t>(shape_.vocab_size));
    model_.network->forward({tokens, positions, seqs, rows}, logits_.data());
    for (size_t i = 0; i < n; ++i) {
      const int32_t next = sample(logits_.data() + i * static_cast<size_t>(shape_.vocab_size),
                                  uniform01(seed_, index * n + i));
      std::vector<int32_t>& text = texts_[i].back();
      const bool ends = std::find(model_.eos_token_ids.begin(), model_.eos_token_ids.end(), next) !=
                        model_.eos_token_ids.end();
      const bool over = ends || static_cast<int64_t>(text.size()) == longest_;
      for (size_t t = i * tables; t < (i + 1) * tables; ++t)
        views_[t].len = over ? 0 : views_[t].len + 1;
      if (over) {
        texts_[i].push_back({first_token()});
      } else {
        text.push_back(next);
      }
    }
  }

  std::vector<std::vector<int32_t>>& texts(int i) { return texts_[static_cast<size_t>(i)]; }

 private:
  int32_t first_token() const {
    if (model_.tokenizer->bos() >= 0) return model_.tokenizer->bos();
    return model_.eos_token_ids.empty() ? 0 : model_.eos_token_ids[0];
  }
  int32_t sample(const float* logits, double u) const {
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

  LoadedModel& model_;
  const ModelShape& shape_;
  uint64_t seed_;
  int n_ = 0;
  int64_t longest_ = 0;
  std::vector<std::vector<BlockId>> ids_;
  std::vector<TableView> views_;
  std::vector<std::vector<std::vector<int32_t>>> texts_;  // of each, those ended and the open one
  std::vector<float> logits_;
};

}  // namespace

Result<CalibrationText> tokens_of_text(const std::string& text, const CalibrationTextOptions& o) {
  PF_ASSIGN(const auto tokenizer, load_tokenizer(o.model));
  const std::vector<int32_t> all = tokenizer->encode(text, false, false);
  const auto n = static_cast<int64_t>(all.size());
  if (n < kFewestTokens) {
    return bad_input("the text has {} tokens; at least {} are needed, and thousands are better", n,
                     kFewestTokens);
  }
  CalibrationText out;
  const int64_t held = std::min(o.held_out, o.tokens > 0 ? n / 8 : n);
  const int64_t used = std::min(o.tokens, n - held);
  const std::span<const int32_t> span(all);
  out.calibration = windows_of(span.first(static_cast<size_t>(used)), o.window);
  out.held_out = windows_of(span.last(static_cast<size_t>(held)), o.window);
  return out;
}

Result<CalibrationText> own_text(const CalibrationTextOptions& o) {
  CalibrationText out;
  const int64_t total = o.tokens + o.held_out;
  if (total == 0) return out;
  EngineOptions engine;
  engine.model = o.model;
  engine.threads = o.threads;
  engine.isa = o.isa;
  PF_ASSIGN(LoadedModel model, load_model(engine));
  const auto n = static_cast<int>(std::clamp<int64_t>(total / kFewestTokens, 1, kMostTexts));
  const int64_t steps = (total + n - 1) / n;
  Writer writer(model, o.seed);
  PF_TRY(writer.prepare(n, std::min(steps, o.window)));
  for (int64_t i = 0; i < steps; ++i) {
    if (o.stop && o.stop()) return exhausted("interrupted");
    writer.step(static_cast<uint64_t>(i));
    if (o.progress) o.progress(static_cast<uint64_t>(i + 1), static_cast<uint64_t>(steps));
  }
  // Whole texts are held out, at least one where both kinds are wanted.
  auto held = static_cast<int>((o.held_out * n + total - 1) / total);
  if (o.held_out > 0 && o.tokens > 0) held = std::clamp(held, std::min(1, n - 1), n - 1);
  for (int i = 0; i < n; ++i) {
    for (auto& text : writer.texts(i)) {
      if (text.size() < 2) continue;  // a first token alone says nothing
      (i < held ? out.held_out : out.calibration).push_back(std::move(text));
    }
  }
  if (out.calibration.empty() && o.tokens > 0) out.calibration = out.held_out;  // a single text
  return out;
}

}  // namespace pagefold
