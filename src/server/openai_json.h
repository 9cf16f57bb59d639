// The parts of OpenAI answers, written by hand: a chunk costs a few hundred nanoseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/openai_request.h"

namespace pagefold {

// Finite numbers as they are; -infinity is -9999.0, as in vLLM.
void append_logprob(std::string& out, float logprob);

// Tokens as the API shows them: their bytes, invalid UTF-8 as U+FFFD, or "token_id:N".
class TokenNames {
 public:
  TokenNames(const Tokenizer& tokenizer, bool as_ids) : tokenizer_(tokenizer), as_ids_(as_ids) {}
  std::string name(int32_t token) const;   // may hold invalid UTF-8: writers repair it
  std::string bytes(int32_t token) const;  // of the text, special tokens as written
 private:
  const Tokenizer& tokenizer_;
  bool as_ids_;
};

// {"content":[{token, logprob, bytes, top_logprobs}]}: scores[i] belongs to tokens[i], the chosen
// token first, then `top` best ones.
void append_chat_logprobs(std::string& out, const TokenNames& names,
                          std::span<const int32_t> tokens,
                          std::span<const std::vector<TokenLogprob>> scores);

// {"text_offset":[],"token_logprobs":[],"tokens":[],"top_logprobs":[]}. offset: characters before
// the first token; counted on. Empty scores (the first token of a prompt) give nulls.
void append_completion_logprobs(std::string& out, const TokenNames& names,
                                std::span<const int32_t> tokens,
                                std::span<const std::vector<TokenLogprob>> scores, int64_t& offset);

// [null, {"id": {logprob, decoded_token}}, ...]
void append_prompt_logprobs(std::string& out, const TokenNames& names,
                            std::span<const std::vector<TokenLogprob>> scores);

struct UsageTotals {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  std::optional<int64_t> dropped_tokens;  // shown where truncation was asked for
  KvUsage kv;                             // sums over the answers of a request
  bool first = true;
  void add(const GenerationResult& result);  // cache figures only
};
// {"prompt_tokens":...}; with_kv adds the kv object.
void append_usage(std::string& out, const UsageTotals& usage, bool with_kv);

void append_token_ids(std::string& out, std::span<const int32_t> tokens);

// One server-sent event.
void append_sse(std::string& out, std::string_view json);

}  // namespace pagefold
