#include "cli/answer.h"

#include "api/kv_usage_json.h"

#include <chrono>

#include "cli/command.h"
#include "cli/numbers.h"

namespace pagefold {
namespace {

double rate(int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

// Three decimals are enough for milliseconds and rates, and keep the output readable.
double rounded(double value) {
  return static_cast<double>(static_cast<int64_t>(value * 1000 + 0.5)) / 1000;
}

}  // namespace

Answer read_answer(TextStream& stream, InterruptWatcher& interrupts,
                   const std::function<void(std::string_view)>& show) {
  const auto start = std::chrono::steady_clock::now();
  Answer answer;
  interrupts.set([&stream] { stream.cancel(); });
  while (const auto piece = stream.next()) {
    answer.text += *piece;
    if (show) show(*piece);
  }
  interrupts.set(nullptr);
  answer.token_ids = stream.token_ids();
  answer.finish_reason = stream.finish_reason();
  answer.usage = stream.usage();
  answer.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return answer;
}

SamplingOptions merge_sampling(const SamplingOptions& model_defaults,
                               const SamplingOptions& request, const GivenSampling& given) {
  SamplingOptions out = request;
  out.temperature = given.temperature.value_or(model_defaults.temperature);
  out.top_p = given.top_p.value_or(model_defaults.top_p);
  out.min_p = given.min_p.value_or(model_defaults.min_p);
  out.top_k = given.top_k.value_or(model_defaults.top_k);
  out.repetition_penalty = given.repetition_penalty.value_or(model_defaults.repetition_penalty);
  return out;
}

double prefill_rate(const Usage& usage) { return rate(usage.prompt_tokens, usage.prefill_s); }
double decode_rate(const Usage& usage) { return rate(usage.completion_tokens - 1, usage.decode_s); }

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"kv", Json::parse(kv_usage_json(usage.kv))}};
}

Json timings_json(const Answer& answer, double load_s) {
  const Usage& u = answer.usage;
  return {{"load_ms", rounded(load_s * 1e3)},
          {"queued_ms", rounded(u.queued_s * 1e3)},
          {"prefill_ms", rounded(u.prefill_s * 1e3)},
          {"decode_ms", rounded(u.decode_s * 1e3)},
          {"total_ms", rounded(answer.wall_s * 1e3)},
          {"prefill_tokens_per_s", rounded(prefill_rate(u))},
          {"decode_tokens_per_s", rounded(decode_rate(u))}};
}

std::string stats_text(const Answer& answer, double load_s) {
  const Usage& u = answer.usage;
  std::string out = fmt::format("load     {:8.2f} s\n", load_s);
  out += fmt::format("prompt   {:>8} tokens, {:.1f} tokens/s\n", grouped(u.prompt_tokens),
                     prefill_rate(u));
  out += fmt::format("answer   {:>8} tokens, {:.1f} tokens/s, finish: {}\n",
                     grouped(u.completion_tokens), decode_rate(u), answer.finish_reason);
  out += fmt::format("KV cache {:>8} blocks, {} now, {} at most\n", grouped(u.kv_blocks),
                     human_bytes(static_cast<double>(u.kv_bytes)),
                     human_bytes(static_cast<double>(u.kv_peak_bytes)));
  if (u.kv.policy == "full") return out;
  const KvUsage& kv = u.kv;
  out += fmt::format("policy   {:>8}, {:.0f} tokens kept, {:.0f} evicted in {} compactions\n",
                     kv.policy, kv.kept_tokens, kv.evicted_tokens, kv.compactions);
  out += fmt::format("         {:>8} blocks fewer than a full cache, {} moved, {:.1f} ms scoring\n",
                     grouped(kv.freed_blocks), human_bytes(static_cast<double>(kv.moved_bytes)),
                     kv.scored_ms);
  if (kv.blocks_full > 0) {
    out += fmt::format("         {:>8} blocks read of {}\n", grouped(kv.blocks_read),
                       grouped(kv.blocks_full));
  }
  return out;
}

}  // namespace pagefold
