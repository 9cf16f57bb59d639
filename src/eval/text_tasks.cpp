// Tasks on a known text: perplexity, kld and mass. Every sample is a stretch of the text; the first
// tokens are read as a prompt, the rest is scored one token at a time while the cache is compacted
// on its schedule.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/kld.h"
#include "base/log.h"
#include "eval/future.h"
#include "eval/run.h"

namespace pagefold::eval {
namespace {

double log_sum_exp(const float* x, int64_t n) {
  const double most = double{*std::max_element(x, x + n)};
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(double{x[i]} - most);
  return most + std::log(sum);
}

// The full cache at float32, of one sample.
struct Reference {
  std::vector<float> logits;  // [rows][vocab]
  std::vector<double> lse;    // [rows]
  std::unique_ptr<Future> future;
};

class TextTask {
 public:
  TextTask(Run& run, const TextSettings& settings) : run_(run), settings_(settings) {}

  Status all(const std::string& text) {
    PF_TRY(read_texts(text));
    std::string type;
    for (size_t i = 0; i < run_.cells.size(); ++i) {
      if (run_.cells[i].kv_type == type) continue;
      type = run_.cells[i].kv_type;
      PF_TRY(all_of(type));
    }
    return ok_status();
  }

 private:
  bool kld() const { return run_.options.task == "kld"; }
  bool mass() const { return run_.options.task == "mass"; }
  int64_t length() const { return settings_.prompt + settings_.tokens; }

  Status read_texts(const std::string& text) {
    PF_ASSIGN(reference_model_, ForcedModel::open(reference_engine_of(run_.options), length()));
    const Tokenizer& tokenizer = *reference_model_->loaded().tokenizer;
    const std::vector<int32_t> all = tokenizer.encode(text, false, false);
    const int64_t start = tokenizer.adds_bos() ? 1 : 0, want = length() - start;
    const auto n = static_cast<int64_t>(all.size());
    if (n < want * run_.samples) {
      return bad_input(
          "the text has {} tokens, but {} samples of {} tokens are wanted; give a longer --data, "
          "or fewer --samples or --tokens",
          n, run_.samples, want);
    }
    for (int64_t i = 0; i < run_.samples; ++i) {
      const auto from = run_.samples > 1 ? (n - want) * i / (run_.samples - 1) : 0;
      std::vector<int32_t> tokens;
      if (start > 0) tokens.push_back(tokenizer.bos());
      tokens.insert(tokens.end(), all.begin() + from, all.begin() + from + want);
      texts_.push_back(std::move(tokens));
    }
    return ok_status();
  }

  // A share of quest's budget is one of the whole text: it reads by a fixed number of blocks.
  Result<std::shared_ptr<const KvPlan>> plan_of(const Cell& cell) {
    PF_ASSIGN(std::shared_ptr<const KvPlan> plan,
              reference_model_->plan(cell.words(run_.options.engine.kv), settings_.prompt));
    if (!plan->quest_reads_budget || plan->budget_share <= 0) return plan;
    KvPlan own = *plan;
    own.quest_reads_budget = false;
    const int64_t block = reference_model_->kv().block_size;
    const double blocks =
        own.budget_share * static_cast<double>(length()) / static_cast<double>(block);
    own.quest_tokens = static_cast<int64_t>(std::ceil(blocks)) * block;
    return std::make_shared<const KvPlan>(std::move(own));
  }

  Status all_of(const std::string& type) {
    std::vector<std::pair<Cell, std::shared_ptr<const KvPlan>>> cells;
    std::unique_ptr<ForcedModel> own;
    bool oracle = false, missing = false;
    const std::vector<Cell> grid = run_.cells;
    for (const Cell& cell : grid) {
      if (cell.kv_type != type) continue;
      auto plan = plan_of(cell);
      if (!plan.ok()) {
        PF_TRY(run_.leave_out(cell, plan.status()));
        continue;
      }
      oracle |= (*plan)->policy->defaults().offline;
      missing |= run_.missing(cell);
      cells.emplace_back(cell, *std::move(plan));
    }
    if (!missing) return ok_status();
    if (type != "float32" || run_.options.engine.kv_cache_dtype_v != "auto") {
      PF_ASSIGN(own, ForcedModel::open(engine_of(run_.options, type), length()));
    }
    ForcedModel& model = own ? *own : *reference_model_;
    for (int64_t sample = 0; sample < run_.samples; ++sample) {
      const bool any = std::any_of(cells.begin(), cells.end(), [&](const auto& c) {
        return run_.results.find(c.first, sample) == nullptr;
      });
      if (!any) continue;
      PF_ASSIGN(const Reference reference, make_reference(sample, oracle));
      for (const auto& [cell, plan] : cells) {
        if (run_.results.find(cell, sample) != nullptr) continue;
        PF_ASSIGN(Json values, measure(model, plan, sample, reference));
        PF_TRY(run_.keep(cell, sample, std::move(values)));
      }
    }
    return ok_status();
  }

  Result<Reference> make_reference(int64_t sample, bool oracle) {
    Reference r;
    if (!kld() && !mass() && !oracle) return r;
    ForcedModel& model = *reference_model_;
    const int64_t vocab = model.shape().vocab_size;
    ForcedHooks hooks;
    if (mass() || oracle) {
      r.future = std::make_unique<Future>(model, length(), settings_.prompt, mass());
      r.future->attach(model, hooks);
    }
    if (kld()) {
      r.logits.resize(static_cast<size_t>(settings_.tokens * vocab));
      r.lse.resize(static_cast<size_t>(settings_.tokens));
      hooks.logits = [&](int64_t first, int64_t rows, const float* logits) {
        const int64_t at = first - (settings_.prompt - 1);
        std::copy_n(logits, rows * vocab, r.logits.data() + at * vocab);
        for (int64_t i = 0; i < rows; ++i)
          r.lse[static_cast<size_t>(at + i)] = log_sum_exp(logits + i * vocab, vocab);
      };
    }
    PF_ASSIGN(const auto plan, model.plan({{"policy", "full"}}, settings_.prompt));
    PF_TRY(model.run(plan, texts_[static_cast<size_t>(sample)], settings_.prompt, hooks).status());
    return r;
  }

  Result<Json> measure(ForcedModel& model, const std::shared_ptr<const KvPlan>& plan,
                       int64_t sample, const Reference& reference) {
    const auto& tokens = texts_[static_cast<size_t>(sample)];
    ForcedHooks hooks;
    std::vector<double> nll, kld_rows, lost, output_error;
    std::vector<int64_t> newest;  // kld: tokens from each row back to the newest evicted one
    std::vector<double> lost_at(kDistances, 0.0);
    int64_t agree = 0;
    const int64_t vocab = model.shape().vocab_size;
    if (reference.future && plan->policy->defaults().offline)
      hooks.before_compaction = [&](SequenceCompression& c) { reference.future->tell(c); };
    if (!mass()) {
      hooks.logits = [&](int64_t first, int64_t rows, const float* logits) {
        for (int64_t i = 0; i < rows; ++i, logits += vocab) {
          const double lse = log_sum_exp(logits, vocab);
          const auto next = static_cast<size_t>(first + i + 1);
          nll.push_back(lse - double{logits[tokens[next]]});
          if (!kld()) continue;
          const int64_t at = first + i - (settings_.prompt - 1);
          const float* full = reference.logits.data() + at * vocab;
          KldRow row;
          row.add(full, logits, vocab);
          kld_rows.push_back(row.kld());
          agree += row.same_top() ? 1 : 0;
        }
      };
    } else {
      hooks.stop_every = Future::kWindow;
      hooks.at_stop = [&](const Sequence& s) {
        look(s, *reference.future, lost, output_error, lost_at);
      };
    }
    if (kld()) {
      hooks.stop_every = Future::kWindow;
      hooks.at_stop = [&](const Sequence& s) { newest.push_back(newest_evicted(s)); };
    }
    PF_ASSIGN(const ForcedUsage usage, model.run(plan, tokens, settings_.prompt, hooks));
    Json out = {{"kv_bytes", usage.bytes_mean},
                {"kv_bytes_peak", usage.bytes_peak},
                {"kv_bytes_end", usage.bytes_end},
                {"compactions", usage.compactions},
                {"kept_tokens", usage.kept_tokens}};
    if (!mass()) out["nll"] = nll;
    if (kld()) {
      newest.resize(nll.size() / Future::kWindow + 1, -1);
      out["kld"] = kld_rows;
      out["agree"] = agree;
      out["newest_evicted"] = newest;
    }
    if (mass()) {
      out["lost"] = lost;
      out["output_error"] = output_error;
      out["lost_by_distance"] = lost_at;
    }
    return out;
  }

  // Tokens from the next row back to the newest one that a table has lost, mean over the tables;
  // -1: nothing was lost.
  static int64_t newest_evicted(const Sequence& s) {
    if (!s.compression) return -1;
    const SequenceSignals& signals = s.compression->signals();
    double sum = 0;
    int64_t tables = 0;
    for (int t = 0; t < s.cache.shape().n_tables(); ++t) {
      int64_t expected = s.n_computed - 1;
      const int32_t* p = signals.positions(t);
      std::vector<int32_t> held(p, p + signals.slots(t));
      std::sort(held.begin(), held.end(), std::greater<>());
      for (const int32_t at : held) {
        if (at != expected) break;
        --expected;
      }
      if (expected < 0 || held.empty()) continue;
      sum += static_cast<double>(s.n_computed - expected);
      ++tables;
    }
    return tables == 0 ? -1 : static_cast<int64_t>(std::lround(sum / static_cast<double>(tables)));
  }

  // What the rows of the coming window will miss.
  void look(const Sequence& s, const Future& future, std::vector<double>& lost,
            std::vector<double>& output_error, std::vector<double>& lost_at) const {
    const int64_t window = (s.n_computed - settings_.prompt) / Future::kWindow;
    if (s.n_computed >= length() - 1) return;  // no row comes
    const int n_tables = s.cache.shape().n_tables();
    double sum = 0, error = 0;
    int64_t tables = 0;
    std::vector<int32_t> held;
    for (int t = 0; t < n_tables; ++t) {
      const auto& mass = future.mass(window, t);
      if (mass.empty()) continue;
      ++tables;
      if (!s.compression) continue;
      const SequenceSignals& signals = s.compression->signals();
      const int32_t* p = signals.positions(t);
      held.assign(p, p + signals.slots(t));
      std::sort(held.begin(), held.end());
      const auto rows = static_cast<double>(future.rows(window));
      auto next = held.begin();
      for (int64_t at = 0; at < s.n_computed; ++at) {
        if (next != held.end() && *next == at) {
          ++next;
          continue;
        }
        const double m = double{mass[static_cast<size_t>(at)]} / rows;
        sum += m;
        lost_at[distance_bucket(s.n_computed - at)] += m;
      }
      if (held.size() < static_cast<size_t>(s.n_computed))
        error += future.output_error(window, t, held);
    }
    lost.push_back(tables == 0 ? 0 : sum / static_cast<double>(tables));
    output_error.push_back(tables == 0 ? 0 : error / static_cast<double>(tables));
    if (window + 1 == future.windows() && tables > 0) {
      for (double& m : lost_at)
        m /= static_cast<double>(tables) * static_cast<double>(future.windows());
    }
  }

  // Buckets of powers of two: [0] 1..31, [1] 32..63, [2] 64..127 ...
  static constexpr size_t kDistances = 12;
  static size_t distance_bucket(int64_t distance) {
    size_t bucket = 0;
    for (int64_t d = distance; d >= 32 && bucket + 1 < kDistances; d /= 2) ++bucket;
    return bucket;
  }

  Run& run_;
  const TextSettings settings_;
  std::unique_ptr<ForcedModel> reference_model_;
  std::vector<std::vector<int32_t>> texts_;
};

}  // namespace

Status run_text_task(Run& run, const TextSettings& settings, const std::string& text) {
  return TextTask(run, settings).all(text);
}

}  // namespace pagefold::eval
