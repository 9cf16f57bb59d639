// What a request may ask for.
#pragma once

#include "engine/engine.h"
#include "engine/request.h"

namespace pagefold {

// kInvalidArgument naming the field, its value and the range.
Status check_request(const Request& request, const EngineConfig& config, int64_t vocab_size);

// kv.session and kv.drop_thinking, which are no business of a plan: taken out of the options.
struct SessionWords {
  std::string name;  // empty: none
  bool drop_thinking = true;
};
Result<SessionWords> take_session_words(KvOptions& kv);

// max_tokens, or the room left in the context when it is absent. Of a checked request.
int64_t resolved_max_tokens(const Request& request, const EngineConfig& config);

}  // namespace pagefold
