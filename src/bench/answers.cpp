#include "bench/answers.h"

#include <memory>
#include <vector>

#include "base/random.h"
#include "bench/bandwidth.h"

namespace pagefold::bench {
namespace {

Request made_request(const AnswerSpec& spec, int64_t vocab, int64_t index) {
  Request r;
  r.kv = spec.kv;
  r.id = fmt::format("bench-{}", index);
  for (int64_t i = 0; i < spec.prompt; ++i) {
    const double u = uniform01(spec.seed + static_cast<uint64_t>(index), static_cast<uint64_t>(i));
    r.tokens.push_back(static_cast<int32_t>(u * static_cast<double>(vocab)));
  }
  r.sampling.temperature = 0;
  r.sampling.max_tokens = spec.tokens;
  r.sampling.ignore_eos = true;
  return r;
}

void wait_for_first_token(Generation& g) {
  std::vector<TokenEvent> events;
  while (events.empty() && !g.finished()) {
    g.wait();
    g.poll(events);
  }
}

Status wait_for_end(Generation& g) {
  std::vector<TokenEvent> events;
  while (!g.finished()) {
    g.wait();
    events.clear();
    g.poll(events);
  }
  if (g.result().reason == FinishReason::length) return ok_status();
  return bad_data("an answer ended early: {}", g.result().error);
}

}  // namespace

Result<AnswerTimes> time_answers(EngineCore& core, int64_t vocab, const AnswerSpec& spec) {
  std::vector<std::shared_ptr<Generation>> all;
  const double start = seconds(), cpu_start = cpu_seconds();
  for (int64_t b = 0; b < spec.batch; ++b) {
    PF_ASSIGN(std::shared_ptr<Generation> g, core.submit(made_request(spec, vocab, b)));
    all.push_back(std::move(g));
  }
  AnswerTimes t;
  for (const auto& g : all) wait_for_first_token(*g);
  t.prefill_s = seconds() - start;
  t.prefill_cpu_s = cpu_seconds() - cpu_start;
  const EngineMetrics before = core.metrics();
  for (const auto& g : all) PF_TRY(wait_for_end(*g));
  t.decode_s = seconds() - start - t.prefill_s;
  t.decode_cpu_s = cpu_seconds() - cpu_start - t.prefill_cpu_s;
  const EngineMetrics after = core.metrics();
  t.scoring = (after.scoring_s - before.scoring_s) / t.decode_s;
  t.moving = (after.moving_s - before.moving_s) / t.decode_s;
  t.compactions = after.compactions - before.compactions;
  t.first = all.front()->result();
  return t;
}

}  // namespace pagefold::bench
