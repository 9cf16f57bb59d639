// /v1/responses: text and calls of the client's functions. A request becomes one of
// /v1/chat/completions; its answer is put into the other shape on the way out. Nothing is stored.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"
#include "server/openai_request.h"

namespace pagefold {

struct ResponsesRequest {
  CompletionRequest chat;
  Json echo;  // the fields of the answer that repeat the request's
};
// Refused by name: store, previous_response_id, conversation, background, tools that are no
// functions, items other than messages, calls, their outputs and reasoning.
std::optional<ApiError> parse_responses(const Json& body, const ApiModel& model,
                                        ResponsesRequest& out);

// Takes the chat answer, plain or streamed, and gives `to` a response object or its events.
std::shared_ptr<Responder> responses_responder(std::shared_ptr<Responder> to, Json echo,
                                               const std::string& model_name,
                                               const std::string& id);

// --- parts of parse_responses ---
class FieldReader;
struct ChatForm {
  Json messages = Json::array();
  std::vector<int64_t> sources;  // of each message: the index of its item in "input"; -1: none
  Json tools, tool_choice;       // null: not given
};
void read_input(FieldReader& fields, ChatForm& out);
void read_response_tools(FieldReader& fields, ChatForm& out);

}  // namespace pagefold
