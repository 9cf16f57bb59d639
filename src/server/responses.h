// /v1/responses in its basic form: text in, text out. A request becomes one of
// /v1/chat/completions; its answer is put into the other shape on the way out. Nothing is stored.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/openai_request.h"

namespace pagefold {

struct ResponsesRequest {
  CompletionRequest chat;
  Json echo;  // the fields of the answer that repeat the request's
};
// Refused by name: tools, previous_response_id, conversation, background, items other than
// messages.
std::optional<ApiError> parse_responses(const Json& body, const ApiModel& model,
                                        ResponsesRequest& out);

// Takes the chat answer, plain or streamed, and gives `to` a response object or its events.
std::shared_ptr<Responder> responses_responder(std::shared_ptr<Responder> to, Json echo,
                                               const std::string& model_name,
                                               const std::string& id);

}  // namespace pagefold
