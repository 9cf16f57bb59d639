#include "server/openai_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace pagefold {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Special tokens that the reader of the message looks for.
std::vector<int32_t> format_marks(const ApiModel& model, const MessageFormat& format) {
  std::vector<int32_t> out;
  const auto add = [&](std::string_view piece) {
    const int32_t id = model.tokenizer->find_piece(piece);
    if (id >= 0) out.push_back(id);
  };
  if (format.tools != ToolDialect::none) {
    for (const auto piece :
         {"<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"}) {
      add(piece);
    }
  }
  if (format.reasoning) {
    add("<think>");
    add("</think>");
  }
  return out;
}

}  // namespace

StreamDecoder::Options Choice::decoding(const ApiModel& model, const CompletionRequest& request) {
  return {.skip_special = request.sampling.skip_special_tokens,
          .stop = request.sampling.stop,
          .include_stop = request.sampling.include_stop_str_in_output,
          .shown_special = format_marks(model, request.format),
          .at_text_start = request.at_text_start};
}

Choice::Choice(const ApiModel& model, const CompletionRequest& request)
    : decoder_(*model.tokenizer, decoding(model, request)),
      eos_(&model.eos_token_ids),
      sampling_(&request.sampling) {}

std::string Choice::push(const TokenEvent& event) {
  if (stopped_) return {};
  tokens_.push_back(event.token);
  if (sampling_->logprobs) scores_.push_back(event.logprobs);
  const bool stop_token = contains(sampling_->stop_token_ids, event.token);
  const bool end_token = !sampling_->ignore_eos && contains(*eos_, event.token);
  if (stop_token || end_token) {
    stopped_ = true;
    if (stop_token) stop_token_ = event.token;
    // The token that ends the answer is not part of its text, unless asked for.
    std::string text =
        sampling_->include_stop_str_in_output ? decoder_.push(event.token) : std::string();
    return text + decoder_.finish();
  }
  std::string text = decoder_.push(event.token);
  stopped_ = decoder_.stopped();
  return text;
}

std::string Choice::finish() {
  std::string text = decoder_.finish();
  stopped_ = stopped_ || decoder_.stopped();
  return text;
}

std::string_view Choice::finish_reason(const GenerationResult& result) const {
  return stopped_ ? finish_reason_name(FinishReason::stop) : finish_reason_name(result.reason);
}

std::string Choice::stop_reason_json() const {
  if (decoder_.stopped()) {
    std::string out;
    append_json_string(out, decoder_.stop_string());
    return out;
  }
  return stop_token_ >= 0 ? fmt::format("{}", stop_token_) : "null";
}

}  // namespace pagefold
