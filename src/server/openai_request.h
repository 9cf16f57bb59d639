// Bodies of /v1/completions, /v1/chat/completions, /tokenize and /detokenize, checked and turned
// into native form. Nothing here knows HTTP or the engine.
//
// Rules: null is the same as absent; unknown fields are ignored; fields that would change the
// answer and are not supported are refused by name. Messages never contain bytes of the request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/grammar_store.h"
#include "api/keep_words.h"
#include "api/loaded_model.h"
#include "api/special_pieces.h"
#include "base/json.h"
#include "engine/request.h"
#include "pagefold/options.h"
#include "server/api_error.h"
#include "server/message_reader.h"
#include "server/request_metrics.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagefold {

// What the parsers must know of the served model.
struct ApiModel {
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // null: chat is refused
  SpecialPieces special;
  std::string path;                // of the served model's file or folder; empty: it has none
  std::vector<std::string> names;  // accepted in `model`; the first is reported
  std::vector<int32_t> eos_token_ids;
  GenerationDefaults defaults;
  int64_t max_model_len = 0;
  bool compresses = false;                 // requests that say nothing of it are compressed
  std::string keep;                        // of conversations, where a request does not say
  std::shared_ptr<GrammarStore> grammars;  // null: no answer can be constrained
  ToolDialect tools = ToolDialect::none;   // none: hermes, asked for in the system message
  bool tools_in_template = true;           // the template shows the tools to the model
  bool auto_tools = true;                  // calls are looked for when tool_choice is auto
  ReasoningDialect reasoning = ReasoningDialect::none;
  Request::Thinking thinking;               // of models whose templates leave earlier thoughts out
  std::shared_ptr<RequestMetrics> metrics;  // null: nothing is counted
  // Prompts are counted so far; what is longer is refused as "more than" this.
  size_t prompt_limit() const { return 2 * static_cast<size_t>(max_model_len); }
};
ApiModel make_api_model(const LoadedModel& model, int64_t max_model_len,
                        std::vector<std::string> served_names);

// n x prompts at most.
inline constexpr int64_t kMaxChoices = 128;
inline constexpr int64_t kMaxLogprobs = 20;
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxBadWords = 128;
inline constexpr int64_t kDefaultMaxTokens = 16;  // of a completion

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;          // what echo shows
  int64_t suffix_begin = 0;  // see Request
  std::string keep;          // "0:32": tokens that compression keeps; empty: none
  int64_t dropped = 0;       // tokens that stood in front of these (truncate_prompt_tokens)
};

struct CompletionRequest {
  std::string id;  // the HTTP request's; the answer's id is made of it. Empty: a new one
  bool chat = false;
  std::vector<Prompt> prompts;  // one for chat
  int64_t n = 1;                // choices of prompt p have the indices p*n .. p*n + n - 1
  SamplingOptions sampling;     // choice i of a prompt uses seed + i
  KvOptions kv;
  std::string cache_salt;           // see Request
  std::optional<int64_t> truncate;  // only the last tokens of a prompt are taken, at most so many
  bool stream = false, include_usage = false, continuous_usage = false;
  bool echo = false;
  bool echo_logprobs = false;  // the prompt is scored only for the echo
  bool prompt_only = false;    // echo with max_tokens 0: one token is generated and not shown
  bool return_token_ids = false, return_tokens_as_token_ids = false;
  std::shared_ptr<TokenGrammar> grammar;  // what the answer must match; null: anything
  MessageFormat format;                   // chat: how it is taken apart
  // The answer begins a text (a fresh assistant turn), it does not continue one.
  bool at_text_start = false;
};

// nullopt: done. Each checks the whole body.
std::optional<ApiError> parse_completion(const Json& body, const ApiModel& model,
                                         CompletionRequest& out);
std::optional<ApiError> parse_chat(const Json& body, const ApiModel& model, CompletionRequest& out);

struct TokenizeRequest {
  std::vector<int32_t> tokens;
  bool return_token_strs = false;
};
std::optional<ApiError> parse_tokenize(const Json& body, const ApiModel& model,
                                       TokenizeRequest& out);
std::optional<ApiError> parse_detokenize(const Json& body, const ApiModel& model,
                                         std::vector<int32_t>& out);

// The body as a JSON object: size of strings, depth (64), UTF-8 and number of fields are checked.
std::optional<ApiError> parse_body(std::string_view text, Json& out);

// --- parts, used by the parsers above ---
class FieldReader;
void read_model_name(FieldReader& fields, const ApiModel& model);
void read_sampling(FieldReader& fields, const ApiModel& model, CompletionRequest& out);
void read_stream_options(FieldReader& fields, CompletionRequest& out);
// After the prompts: response_format, guided_*, structured_outputs, tool_choice.
void read_answer_format(FieldReader& fields, const ApiModel& model, CompletionRequest& out);
void read_kv(FieldReader& fields, KvOptions& out);
// Token ids of `value` (an array) into out.
void read_token_ids(FieldReader& fields, std::string_view name, const Json& value,
                    const ApiModel& model, std::vector<int32_t>& out);
// max_tokens against the room that the prompts leave.
void check_lengths(FieldReader& fields, const ApiModel& model, CompletionRequest& request);
// messages, tools, template switches -> one prompt.
struct ConversationOptions {
  size_t limit = SIZE_MAX;          // see ChatPromptOptions
  const KvOptions* kv = nullptr;    // `keep` of it becomes Prompt::keep; null: nothing does
  std::optional<int64_t> truncate;  // see CompletionRequest
};
void read_conversation(FieldReader& fields, const ApiModel& model,
                       const ConversationOptions& options, Prompt& out, bool& continues_message);
// Takes tokens off the front of a prompt until `most` are left; keep: spans of it, moved with it.
void truncate_prompt(int64_t most, Prompt& prompt, std::vector<KeepSpan>& keep);
// `keep` of a request without messages: spans alone.
void read_keep(FieldReader& fields, CompletionRequest& request);

}  // namespace pagefold
