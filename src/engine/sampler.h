// From logits to a token. Order, as in vLLM: penalties, bias, ban of end tokens (min_tokens), of
// what allowed_token_ids and the grammar do not allow, and of bad words; temperature, min_p, top_k,
// top_p, draw.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "pagefold/options.h"

namespace pagefold {

// Below this a temperature is greedy.
constexpr float kGreedyTemperature = 1e-4f;

// Scratch for one vocabulary; nothing is remembered from token to token, so a sequence may be
// paused and computed again at any point. NaN logits count as -inf.
class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  struct Context {
    const SamplingOptions& options;
    std::span<const int32_t> tokens;  // prompt and what was generated
    int64_t n_prompt = 0;
    std::span<const int32_t> eos_token_ids;
    uint64_t seed = 0;
    // One bit a token (grammar/vocabulary.h); null: all may come.
    const uint32_t* allowed = nullptr;
  };
  // logits: [vocab_size], not changed. The random number is draw `tokens generated so far` of
  // stream `seed`. Candidates are walked by ascending id. Equal logits: the lowest id comes first.
  // -1: no logit is above -inf, as the model gave them; kNothingAllowed: none of those allowed is.
  static constexpr int32_t kNothingAllowed = -2;
  int32_t sample(const Context& context, const float* logits);

 private:
  struct Candidate {
    float weight;
    int32_t id;
    bool before(const Candidate& o) const {
      return weight > o.weight || (weight == o.weight && id < o.id);
    }
  };
  const float* adjust(const Context& context, const float* logits);
  void penalise(const Context& context);
  void keep_only(std::span<const int32_t> ids);
  int32_t ban_words(const Context& context, int32_t best);
  int32_t draw(const SamplingOptions& options, const float* logits, float best, double u);
  struct Bucket {
    int64_t count = 0;
    double mass = 0;
  };
  void collect(size_t bucket, const Candidate& cut);
  Candidate select_by_mass(double wanted, Candidate none);
  Candidate last_kept(const SamplingOptions& options, double total);

  size_t vocab_;
  std::vector<float> adjusted_;  // [vocab]
  std::vector<float> weights_;   // [vocab] exp((logit - best) / temperature), 0 = dropped
  std::vector<int32_t> counts_;  // [vocab] times generated; all 0 between calls
  std::vector<uint8_t> seen_;    // [vocab] in prompt or output; all 0 between calls
  std::vector<Bucket> buckets_;
  std::vector<Candidate> candidates_;
  std::vector<std::pair<int32_t, float>> banned_;  // by bad words, with the logits they had
};

// Log-probabilities of the model's own distribution, before penalties, bias and temperature (vLLM's
// default): the chosen token's first, then the n_best most likely, best first, equal ones by id.
void token_logprobs(std::span<const float> logits, int32_t chosen, int n_best,
                    std::vector<TokenLogprob>& out);

}  // namespace pagefold
