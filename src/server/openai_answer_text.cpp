// The JSON of an answer: whole (plain) or in chunks (streams).
#include <fmt/format.h>

#include <iterator>

#include "base/json.h"
#include "server/openai_answer.h"

namespace pagefold {

// Scores of the tokens from `first` on; with_prompt puts those of the prompt in front (echo).
void AnswerJob::append_scores(std::string& out, const Slot& slot, size_t first, int64_t& offset,
                              bool with_prompt) const {
  const auto tokens = std::span(slot.choice.tokens()).subspan(first);
  const auto scores = std::span(slot.choice.scores()).subspan(first);
  if (request_.chat) return append_chat_logprobs(out, names_, tokens, scores);
  if (!with_prompt) return append_completion_logprobs(out, names_, tokens, scores, offset);
  std::vector<int32_t> all_tokens = slot.prompt->tokens;
  all_tokens.insert(all_tokens.end(), tokens.begin(), tokens.end());
  auto all_scores = slot.generation->result().prompt_logprobs;
  all_scores.resize(slot.prompt->tokens.size());
  all_scores.insert(all_scores.end(), scores.begin(), scores.end());
  append_completion_logprobs(out, names_, all_tokens, all_scores, offset);
}

std::string AnswerJob::plain_choice(size_t index) const {
  const Slot& slot = slots_[index];
  const GenerationResult& result = slot.generation->result();
  std::string out = fmt::format(R"({{"index":{},)", index);
  if (request_.chat) {
    out += R"("message":{"role":"assistant","content":)";
    if (slot.whole.content.empty() && !slot.whole.calls.empty()) {
      out += "null";
    } else {
      append_json_string(out, slot.whole.content);
    }
    if (!slot.whole.reasoning.empty()) {
      out += ",\"reasoning_content\":";
      append_json_string(out, slot.whole.reasoning);
    }
    if (!slot.whole.calls.empty()) append_calls(out, slot, slot.whole.calls, false);
    out += '}';
  } else {
    out += "\"text\":";
    append_json_string(out,
                       request_.echo ? slot.prompt->text + slot.whole.content : slot.whole.content);
  }
  out += ",\"logprobs\":";
  if (request_.sampling.logprobs) {
    int64_t offset = 0;
    append_scores(out, slot, 0, offset, request_.echo);
  } else {
    out += "null";
  }
  fmt::format_to(std::back_inserter(out), R"(,"finish_reason":"{}","stop_reason":{})",
                 finish_reason(slot), slot.choice.stop_reason_json());
  if (!request_.chat && request_.sampling.prompt_logprobs && !request_.echo_logprobs) {
    out += ",\"prompt_logprobs\":";
    append_prompt_logprobs(out, names_, result.prompt_logprobs);
  }
  if (request_.return_token_ids) {
    out += ",\"token_ids\":";
    append_token_ids(out, slot.choice.tokens());
    if (!request_.chat) {
      out += ",\"prompt_token_ids\":";
      append_token_ids(out, slot.prompt->tokens);
    }
  }
  return out + '}';
}

// ,"tool_calls":[...]: whole calls, or pieces of them with their index.
void AnswerJob::append_calls(std::string& out, const Slot& slot,
                             const std::vector<ToolCallDelta>& calls, bool stream) const {
  out += stream ? "\"tool_calls\":[" : ",\"tool_calls\":[";
  bool first = true;
  for (const ToolCallDelta& call : calls) {
    out += first ? "{" : ",{";
    first = false;
    if (stream) fmt::format_to(std::back_inserter(out), "\"index\":{},", call.index);
    if (call.begins) {
      fmt::format_to(std::back_inserter(out), R"("id":"{}","type":"function","function":{{"name":)",
                     slot.call_ids[static_cast<size_t>(call.index)]);
      append_json_string(out, call.name);
      out += ',';
    } else {
      out += "\"function\":{";
    }
    out += "\"arguments\":";
    append_json_string(out, call.arguments);
    out += "}}";
  }
  out += ']';
}

void AnswerJob::send_plain() {
  std::string out = head(request_.chat ? "chat.completion" : "text_completion");
  out += ",\"choices\":[";
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (i) out += ',';
    out += plain_choice(i);
  }
  out += "],\"usage\":";
  append_usage(out, usage(), true);
  if (request_.chat && request_.sampling.prompt_logprobs) {
    out += ",\"prompt_logprobs\":";
    append_prompt_logprobs(out, names_, slots_[0].generation->result().prompt_logprobs);
  }
  if (request_.chat && request_.return_token_ids) {
    out += ",\"prompt_token_ids\":";
    append_token_ids(out, slots_[0].prompt->tokens);
  }
  out += '}';
  responder_->send(200, {{"Content-Type", "application/json"}}, std::move(out));
}

void AnswerJob::write_event(std::string_view choices_and_rest) {
  std::string json = stream_head_;
  json += choices_and_rest;
  if (request_.continuous_usage) {
    json += ",\"usage\":";
    append_usage(json, usage(), false);
  }
  json += '}';
  std::string event;
  append_sse(event, json);
  responder_->write(event);
}

// Chat: the role. Completions: the prompt, if it is to be echoed, and its ids.
void AnswerJob::write_first(size_t index) {
  Slot& slot = slots_[index];
  if (slot.begun) return;
  slot.begun = true;
  std::string out;
  if (request_.chat) {
    out = fmt::format(
        R"(,"choices":[{{"index":{},"delta":{{"role":"assistant","content":""}},"finish_reason":null}}])",
        index);
    if (request_.return_token_ids && index == 0) {
      out += ",\"prompt_token_ids\":";
      append_token_ids(out, slot.prompt->tokens);
    }
  } else if (request_.echo || request_.return_token_ids) {
    out = fmt::format(R"(,"choices":[{{"index":{},"text":)", index);
    append_json_string(out, request_.echo ? slot.prompt->text : "");
    out += ",\"finish_reason\":null";
    if (request_.return_token_ids) {
      out += ",\"prompt_token_ids\":";
      append_token_ids(out, slot.prompt->tokens);
    }
    out += "}]";
  }
  if (!out.empty()) write_event(out);
}

// finish_reason "": not the last one.
void AnswerJob::write_delta(size_t index, const MessageDelta& delta,
                            std::string_view finish_reason) {
  Slot& slot = slots_[index];
  std::string out = fmt::format(R"(,"choices":[{{"index":{},)", index);
  if (!request_.chat) {
    out += "\"text\":";
    append_json_string(out, delta.content);
  } else {
    out += "\"delta\":{";
    const size_t begin = out.size();
    if (!delta.reasoning.empty()) {
      out += "\"reasoning_content\":";
      append_json_string(out, delta.reasoning);
    }
    if (!delta.content.empty()) {
      out += out.size() > begin ? ",\"content\":" : "\"content\":";
      append_json_string(out, delta.content);
    }
    if (!delta.calls.empty()) {
      if (out.size() > begin) out += ',';
      append_calls(out, slot, delta.calls, true);
    }
    out += '}';
  }
  if (request_.sampling.logprobs && slot.tokens_sent < slot.choice.tokens().size()) {
    out += ",\"logprobs\":";
    append_scores(out, slot, slot.tokens_sent, slot.text_offset, false);
  }
  if (request_.return_token_ids) {
    out += ",\"token_ids\":";
    append_token_ids(out, std::span(slot.choice.tokens()).subspan(slot.tokens_sent));
  }
  slot.tokens_sent = slot.choice.tokens().size();
  if (finish_reason.empty()) {
    out += ",\"finish_reason\":null}]";
  } else {
    fmt::format_to(std::back_inserter(out), R"(,"finish_reason":"{}","stop_reason":{}}}])",
                   finish_reason, slot.choice.stop_reason_json());
  }
  write_event(out);
}

void AnswerJob::end_stream() {
  std::string events;
  if (request_.include_usage) {
    std::string json = stream_head_ + ",\"choices\":[],\"usage\":";
    append_usage(json, usage(), true);
    append_sse(events, json + '}');
  }
  append_sse(events, "[DONE]");
  responder_->write(events);
  responder_->end();
}

}  // namespace pagefold
