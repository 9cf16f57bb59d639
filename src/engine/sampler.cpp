#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace pagefold {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// Index of the largest value, the first of equals; -1 when none is above -inf. NaN never wins a
// comparison.
int32_t argmax(const float* x, size_t n) {
  float best = kMinusInf;
  int32_t at = -1;
  for (size_t i = 0; i < n; ++i) {
    if (x[i] > best) {
      best = x[i];
      at = static_cast<int32_t>(i);
    }
  }
  return at;
}

// Buckets of weights in [0, 1]: exponent and four bits of the mantissa; ascending like the weights.
constexpr int kBucketShift = 19;
size_t bucket_of(float weight) { return std::bit_cast<uint32_t>(weight) >> kBucketShift; }

}  // namespace

Sampler::Sampler(int64_t vocab_size)
    : vocab_(static_cast<size_t>(vocab_size)),
      adjusted_(vocab_),
      weights_(vocab_),
      counts_(vocab_, 0),
      seen_(vocab_, 0),
      buckets_(bucket_of(1.0f) + 1) {
  candidates_.reserve(vocab_);
}

int32_t Sampler::sample(const Context& context, const float* logits) {
  const int32_t model_best = argmax(logits, vocab_);
  if (model_best < 0) return -1;
  const float* x = adjust(context, logits);
  const SamplingOptions& o = context.options;
  int32_t best = x == logits ? model_best : argmax(x, vocab_);
  if (best < 0 && context.allowed != nullptr) return kNothingAllowed;
  if (best < 0 && !o.allowed_token_ids.empty()) {  // the other bans give way to the list
    std::copy_n(logits, vocab_, adjusted_.begin());
    keep_only(o.allowed_token_ids);
    best = argmax(x, vocab_);
    return best < 0 ? o.allowed_token_ids.front() : best;
  }
  if (best < 0) return model_best;  // everything is banned: the model's own choice
  if (!o.bad_words.empty()) best = ban_words(context, best);
  const float best_logit = x[best];
  if (o.temperature < kGreedyTemperature || std::isinf(best_logit)) return best;
  const auto index =
      static_cast<uint64_t>(static_cast<int64_t>(context.tokens.size()) - context.n_prompt);
  return draw(o, x, best_logit, uniform01(context.seed, index));
}

const float* Sampler::adjust(const Context& context, const float* logits) {
  const SamplingOptions& o = context.options;
  const bool penalties =
      o.repetition_penalty != 1.0f || o.presence_penalty != 0.0f || o.frequency_penalty != 0.0f;
  const auto generated = static_cast<int64_t>(context.tokens.size()) - context.n_prompt;
  const bool ban = generated < o.min_tokens;
  if (!penalties && o.logit_bias.empty() && !ban && context.allowed == nullptr &&
      o.allowed_token_ids.empty() && o.bad_words.empty()) {
    return logits;
  }

  std::copy_n(logits, vocab_, adjusted_.begin());
  if (penalties) penalise(context);
  for (const auto& [id, bias] : o.logit_bias) {
    adjusted_[static_cast<size_t>(id)] += std::clamp(bias, -100.0f, 100.0f);
  }
  if (ban) {
    for (const auto ids : {std::span(context.eos_token_ids), std::span(o.stop_token_ids)}) {
      for (const int32_t id : ids) {
        if (id >= 0 && static_cast<size_t>(id) < vocab_) {
          adjusted_[static_cast<size_t>(id)] = kMinusInf;
        }
      }
    }
  }
  if (!o.allowed_token_ids.empty()) keep_only(o.allowed_token_ids);
  if (context.allowed != nullptr) {
    for (size_t i = 0; i < vocab_; ++i) {
      if (((context.allowed[i / 32] >> (i % 32)) & 1) == 0) adjusted_[i] = kMinusInf;
    }
  }
  return adjusted_.data();
}

void Sampler::keep_only(std::span<const int32_t> ids) {
  for (const int32_t id : ids) seen_[static_cast<size_t>(id)] = 1;
  for (size_t i = 0; i < vocab_; ++i) {
    if (seen_[i] == 0) adjusted_[i] = kMinusInf;
    seen_[i] = 0;
  }
}

// The best token that completes no bad word; `best` with all of them back when there is none.
int32_t Sampler::ban_words(const Context& context, int32_t best) {
  const auto answer = context.tokens.subspan(static_cast<size_t>(context.n_prompt));
  banned_.clear();
  for (const std::vector<int32_t>& word : context.options.bad_words) {
    const size_t before = word.size() - 1;
    if (answer.size() < before ||
        !std::equal(word.begin(), word.end() - 1, answer.end() - static_cast<int64_t>(before))) {
      continue;
    }
    float& x = adjusted_[static_cast<size_t>(word.back())];
    if (x > kMinusInf) banned_.emplace_back(word.back(), x);
    x = kMinusInf;
  }
  if (banned_.empty()) return best;
  const int32_t left = argmax(adjusted_.data(), vocab_);
  if (left >= 0) return left;
  for (const auto& [id, x] : banned_) adjusted_[static_cast<size_t>(id)] = x;
  return best;
}

void Sampler::penalise(const Context& context) {
  const SamplingOptions& o = context.options;
  const auto n_prompt = static_cast<size_t>(context.n_prompt);
  for (size_t i = 0; i < context.tokens.size(); ++i) {
    const auto id = static_cast<size_t>(context.tokens[i]);
    seen_[id] = 1;
    if (i >= n_prompt) ++counts_[id];
  }
  for (const int32_t token : context.tokens) {
    const auto id = static_cast<size_t>(token);
    if (seen_[id] == 0) continue;  // done: it came earlier in the list
    float& x = adjusted_[id];
    x = x > 0 ? x / o.repetition_penalty : x * o.repetition_penalty;
    if (counts_[id] > 0) {
      x -= o.frequency_penalty * static_cast<float>(counts_[id]) + o.presence_penalty;
    }
    seen_[id] = 0;
    counts_[id] = 0;
  }
}

int32_t Sampler::draw(const SamplingOptions& o, const float* logits, float best, double u) {
  double total = 0;
  const float scale = 1.0f / o.temperature;
  for (size_t i = 0; i < vocab_; ++i) {
    // The best logit is taken off before scaling, so nothing overflows; exp(-87) is the last
    // normal.
    const float z = (logits[i] - best) * scale;
    float w = z > -87.0f ? std::exp(z) : 0.0f;  // NaN compares false
    if (w < o.min_p) w = 0.0f;
    weights_[i] = w;
    total += w;
  }
  if ((o.top_k > 0 && static_cast<size_t>(o.top_k) < vocab_) || o.top_p < 1.0f) {
    const Candidate cut = last_kept(o, total);
    total = 0;
    for (size_t i = 0; i < vocab_; ++i) {
      if (cut.before({weights_[i], static_cast<int32_t>(i)})) weights_[i] = 0;
      total += weights_[i];
    }
  }
  const double target = u * total;
  double sum = 0;
  int32_t last = -1;
  for (size_t i = 0; i < vocab_; ++i) {
    if (weights_[i] <= 0) continue;
    last = static_cast<int32_t>(i);
    sum += weights_[i];
    if (sum > target) break;
  }
  return last;
}

// The last candidate, by falling weight, that top_k and then top_p keep. `total`: the mass before
// top_k. Weights are counted and summed by the leading bits of their float32 form first, which are
// in their order, so that only the candidates of one or two buckets are ever compared.
Sampler::Candidate Sampler::last_kept(const SamplingOptions& o, double total) {
  std::fill(buckets_.begin(), buckets_.end(), Bucket{});
  int64_t alive = 0;
  for (const float w : weights_) {
    Bucket& b = buckets_[bucket_of(w)];
    ++b.count;
    b.mass += w;
    alive += w > 0 ? 1 : 0;
  }
  Candidate cut{0.0f, std::numeric_limits<int32_t>::max()};  // after every other one
  if (o.top_k > 0 && o.top_k < alive) {
    size_t at = buckets_.size() - 1;
    int64_t above = 0;
    double mass = 0;
    for (; above + buckets_[at].count < o.top_k; --at) {
      above += buckets_[at].count;
      mass += buckets_[at].mass;
    }
    collect(at, cut);
    const auto nth = candidates_.begin() + (o.top_k - above - 1);
    std::nth_element(candidates_.begin(), nth, candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.before(b); });
    cut = *nth;
    for (auto c = candidates_.begin(); c <= nth; ++c) mass += c->weight;
    total = mass;
  }
  if (o.top_p >= 1.0f) return cut;
  const double wanted = static_cast<double>(o.top_p) * total;
  const size_t lowest = bucket_of(cut.weight);
  size_t at = buckets_.size() - 1;
  double mass = 0;
  for (; at > lowest && mass + buckets_[at].mass < wanted; --at) mass += buckets_[at].mass;
  collect(at, cut);
  return select_by_mass(wanted - mass, cut);
}

// candidates_ = those of one bucket that do not come after `cut`.
void Sampler::collect(size_t bucket, const Candidate& cut) {
  candidates_.clear();
  for (size_t i = 0; i < vocab_; ++i) {
    const Candidate c{weights_[i], static_cast<int32_t>(i)};
    if (bucket_of(c.weight) == bucket && c.weight > 0 && !cut.before(c)) candidates_.push_back(c);
  }
}

// Quickselect: the candidate at which the summed weight, best first, reaches `wanted`; `none` when
// there is no candidate, the last one when rounding keeps the sum below.
Sampler::Candidate Sampler::select_by_mass(double wanted, Candidate none) {
  auto first = candidates_.begin();
  auto end = candidates_.end();
  double before_first = 0;
  Candidate cut = none;
  while (first != end) {
    const auto pivot_at = first + (end - first) / 2;
    const Candidate pivot = *pivot_at;
    std::iter_swap(pivot_at, end - 1);
    const auto middle =
        std::partition(first, end - 1, [&](const Candidate& c) { return c.before(pivot); });
    std::iter_swap(middle, end - 1);
    double ahead = 0;
    for (auto c = first; c != middle; ++c) ahead += c->weight;
    if (middle != first && before_first + ahead >= wanted) {
      end = middle;
      continue;
    }
    before_first += ahead + pivot.weight;
    cut = pivot;
    if (before_first >= wanted) break;
    first = middle + 1;
  }
  return cut;
}

void token_logprobs(std::span<const float> logits, int32_t chosen, int n_best,
                    std::vector<TokenLogprob>& out) {
  out.clear();
  float best = kMinusInf;
  for (const float x : logits) best = std::max(best, std::isnan(x) ? kMinusInf : x);
  double sum = 0;
  for (const float x : logits) {
    const float z = x - best;
    if (z > -87.0f) sum += std::exp(z);
  }
  const double log_z = static_cast<double>(best) + std::log(sum);
  const auto logprob = [&](float x) {
    const double v = static_cast<double>(x) - log_z;
    return std::isnan(v) ? kMinusInf : static_cast<float>(v);
  };
  out.reserve(static_cast<size_t>(n_best) + 1);
  out.push_back({chosen, logprob(logits[static_cast<size_t>(chosen)])});
  // Insertion into a short sorted list: nearly every logit fails the first comparison.
  const auto limit = static_cast<size_t>(n_best) + 1;
  for (size_t i = 0; n_best > 0 && i < logits.size(); ++i) {
    const float x = logits[i];
    if (std::isnan(x) || (out.size() == limit && x <= out.back().logprob)) continue;
    if (out.size() < limit) out.push_back({});
    size_t at = out.size() - 1;
    while (at > 1 && out[at - 1].logprob < x) {
      out[at] = out[at - 1];
      --at;
    }
    out[at] = {static_cast<int32_t>(i), x};
  }
  for (size_t i = 1; i < out.size(); ++i) out[i].logprob = logprob(out[i].logprob);
}

}  // namespace pagefold
