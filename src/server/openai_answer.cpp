#include "server/openai_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "api/stop_watch.h"
#include "base/json.h"
#include "base/log.h"
#include "server/request_ids.h"

namespace pagefold {

void send_error(Responder& responder, const ApiError& error) {
  HttpHeaders headers = {{"Content-Type", "application/json"}};
  if (error.status == 429 || error.status == 503) headers.emplace_back("Retry-After", "1");
  responder.send(error.status, std::move(headers), error.body());
}

AnswerJob::AnswerJob(const ApiModel& model, EnginePort& engine, CompletionRequest request,
                     std::shared_ptr<Responder> responder)
    : model_(model),
      engine_(engine),
      request_(std::move(request)),
      responder_(std::move(responder)),
      names_(*model.tokenizer, request_.return_tokens_as_token_ids),
      id_((request_.chat ? "chatcmpl-" : "cmpl-") +
          (request_.id.empty() ? new_id("") : request_.id)),
      created_(static_cast<int64_t>(std::time(nullptr))) {}

AnswerJob::~AnswerJob() { cancel_all(); }

void AnswerJob::start(const ApiModel& model, EnginePort& engine, CompletionRequest request,
                      std::shared_ptr<Responder> responder) {
  std::shared_ptr<AnswerJob> job(
      new AnswerJob(model, engine, std::move(request), std::move(responder)));
  if (auto error = job->submit()) {
    job->finished_ = true;
    job->cancel_all();
    return send_error(*job->responder_, *error);
  }
  if (model.metrics) {
    const auto& most = job->request_.sampling.max_tokens;
    model.metrics->asked(static_cast<double>(job->request_.n),
                         static_cast<double>(most ? *most : model.max_model_len));
  }
  // From here on the responder's callbacks keep the job alive; the end of the answer drops them.
  job->responder_->on_closed([job] {
    job->finished_ = true;
    job->cancel_all();
  });
  job->responder_->on_stopping([job] {
    if (job->finished_) return;
    job->fail({.status = 503, .message = "The server stops before the end.", .param = {}});
  });
  if (job->request_.stream) {
    job->stream_head_ = job->head(job->request_.chat ? "chat.completion.chunk" : "text_completion");
    job->responder_->begin_stream(200, {{"Content-Type", "text/event-stream; charset=utf-8"},
                                        {"Cache-Control", "no-cache"},
                                        {"X-Accel-Buffering", "no"}});
    job->responder_->on_writable([job] { job->pump(); });
  }
  job->watch_generations();
}

std::optional<ApiError> AnswerJob::submit() {
  for (const Prompt& prompt : request_.prompts) {
    for (int64_t i = 0; i < request_.n; ++i) {
      Request r;
      r.id = fmt::format("{}-{}", id_, slots_.size());
      r.tokens = prompt.tokens;
      r.suffix_begin = prompt.suffix_begin;
      r.sampling = request_.sampling;
      if (r.sampling.seed) *r.sampling.seed += static_cast<uint64_t>(i);
      r.eos_token_ids = model_.eos_token_ids;
      r.kv = request_.kv;
      if (!prompt.keep.empty()) r.kv["keep"] = prompt.keep;
      r.thinking = model_.thinking;
      r.cache_salt = request_.cache_salt;
      r.grammar = request_.grammar;
      watch_for_stop(*model_.tokenizer, Choice::decoding(model_, request_), r);
      auto generation = engine_.submit(std::move(r));
      if (!generation.ok()) return api_error(generation.status());
      Slot& slot = slots_.emplace_back(model_, request_);
      slot.generation = *std::move(generation);
      slot.prompt = &prompt;
    }
  }
  return std::nullopt;
}

// The engine calls back on its own thread, at most once a step: all it does is post one pump().
void AnswerJob::watch_generations() {
  for (Slot& slot : slots_) {
    slot.generation->on_change([weak = weak_from_this()] {
      const auto job = weak.lock();
      if (job && !job->scheduled_.exchange(true)) {
        job->responder_->post([job] { job->pump(); });
      }
    });
  }
}

void AnswerJob::pump() {
  scheduled_ = false;
  bool all_done = true;
  for (size_t i = 0; i < slots_.size() && !finished_; ++i) {
    if (!advance(i)) return;
    all_done = all_done && slots_[i].done;
  }
  if (finished_ || !all_done) return;
  finished_ = true;
  if (model_.metrics) {
    int64_t most = 0;
    for (const Slot& slot : slots_) most = std::max(most, slot.choice.completion_tokens());
    model_.metrics->ended(static_cast<double>(most));
  }
  if (request_.stream) {
    end_stream();
  } else {
    send_plain();
  }
}

bool AnswerJob::advance(size_t index) {
  Slot& slot = slots_[index];
  while (!slot.done && !finished_) {
    if (request_.stream && responder_->queued_bytes() >= responder_->max_queued_bytes()) {
      return false;
    }
    if (slot.next < slot.events.size()) {
      take(index, slot.events[slot.next++]);
    } else if (slot.engine_ended) {
      finish_slot(index);
    } else {
      slot.next = 0;
      slot.engine_ended = !slot.generation->poll(slot.events);
      if (!slot.engine_ended && slot.events.empty()) break;
    }
  }
  return true;
}

void AnswerJob::take(size_t index, const TokenEvent& event) {
  Slot& slot = slots_[index];
  if (slot.choice.stopped() || request_.prompt_only) return;
  const std::string text = slot.choice.push(event);
  if (slot.choice.stopped()) slot.generation->cancel();  // a stop string; else it ends by itself
  give(index, slot.reader.push(text));
}

void AnswerJob::give(size_t index, MessageDelta delta) {
  Slot& slot = slots_[index];
  for (const ToolCallDelta& call : delta.calls) {
    if (!call.begins) continue;
    // Mistral's templates want ids of nine characters.
    slot.call_ids.push_back(request_.format.tools == ToolDialect::mistral ? new_id("").substr(0, 9)
                                                                          : new_id("call_"));
  }
  if (request_.stream) {
    write_first(index);
    if (!delta.empty()) write_delta(index, delta, "");
    return;
  }
  slot.whole.reasoning += delta.reasoning;
  slot.whole.content += delta.content;
  for (ToolCallDelta& call : delta.calls) {
    if (call.begins) {
      slot.whole.calls.push_back(std::move(call));
    } else {
      slot.whole.calls.back().arguments += call.arguments;
    }
  }
}

std::string_view AnswerJob::finish_reason(const Slot& slot) const {
  if (request_.prompt_only) return "length";
  const std::string_view reason = slot.choice.finish_reason(slot.generation->result());
  return reason == "stop" && slot.reader.calls() > 0 ? "tool_calls" : reason;
}

void AnswerJob::finish_slot(size_t index) {
  Slot& slot = slots_[index];
  slot.done = true;
  const GenerationResult& result = slot.generation->result();
  if (model_.metrics) model_.metrics->choice_ended(result);
  if (result.reason == FinishReason::error) {
    log::error("{}: {}", id_, result.error);
    return fail({.status = 500, .message = "The engine failed on this request.", .param = {}});
  }
  MessageDelta delta = slot.reader.push(slot.choice.finish());
  MessageDelta last = slot.reader.finish();
  delta.reasoning += last.reasoning;
  delta.content += last.content;
  delta.calls.insert(delta.calls.end(), last.calls.begin(), last.calls.end());
  give(index, std::move(delta));
  if (request_.stream) write_delta(index, {}, finish_reason(slot));
}

void AnswerJob::cancel_all() {
  for (Slot& slot : slots_) {
    if (slot.generation) slot.generation->cancel();
  }
}

void AnswerJob::fail(const ApiError& error) {
  finished_ = true;
  cancel_all();
  if (!request_.stream) return send_error(*responder_, error);
  std::string events;
  append_sse(events, error.body());
  append_sse(events, "[DONE]");
  responder_->write(events);
  responder_->end();
}

UsageTotals AnswerJob::usage() const {
  UsageTotals u;
  if (request_.truncate) u.dropped_tokens = 0;
  for (const Prompt& p : request_.prompts) {
    u.prompt_tokens += static_cast<int64_t>(p.tokens.size());
    if (u.dropped_tokens) *u.dropped_tokens += p.dropped;
  }
  for (const Slot& s : slots_) {
    u.completion_tokens += s.choice.completion_tokens();
    if (s.done) u.add(s.generation->result());
  }
  return u;
}

std::string AnswerJob::head(std::string_view object) const {
  std::string out =
      fmt::format(R"({{"id":"{}","object":"{}","created":{},"model":)", id_, object, created_);
  append_json_string(out, model_.names.front());
  return out;
}

}  // namespace pagefold
