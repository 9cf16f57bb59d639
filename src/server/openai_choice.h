// One choice of an answer: takes the engine's tokens, gives text and scores.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/openai_request.h"
#include "text/stream_decoder.h"

namespace pagefold {

class Choice {
 public:
  Choice(const ApiModel& model, const CompletionRequest& request);
  // How its text is decoded.
  static StreamDecoder::Options decoding(const ApiModel& model, const CompletionRequest& request);

  // Text that became final with this token. Tokens after the end (a stop string was found, an end
  // token came) are dropped: counts and scores stop where the text stops.
  std::string push(const TokenEvent& event);
  // The rest of the text, once no more tokens come.
  std::string finish();

  bool stopped() const { return stopped_; }
  // Tokens taken, the end token included.
  int64_t completion_tokens() const { return static_cast<int64_t>(tokens_.size()); }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // [tokens], empty when no scores were asked for.
  const std::vector<std::vector<TokenLogprob>>& scores() const { return scores_; }
  // "stop", "length", "abort" or "error".
  std::string_view finish_reason(const GenerationResult& result) const;
  // What ended it, as JSON: a stop string, a stop token's id, or null.
  std::string stop_reason_json() const;

 private:
  StreamDecoder decoder_;
  const std::vector<int32_t>* eos_;
  const SamplingOptions* sampling_;
  std::vector<int32_t> tokens_;
  std::vector<std::vector<TokenLogprob>> scores_;
  int32_t stop_token_ = -1;
  bool stopped_ = false;
};

}  // namespace pagefold
