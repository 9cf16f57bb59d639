// Requests of a JSON Lines file in OpenAI's batch format, answered without a network by the handler
// that serves HTTP:
//   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
// gives one line
//   {"id": ..., "custom_id": "a", "response": {"status_code", "request_id", "body"}, "error": null}
// and what is refused, or is no such line, has {"code", "message"} in "error".
#pragma once

#include <cstdint>
#include <iosfwd>

#include "base/result.h"
#include "server/http.h"

namespace pagefold {

struct BatchOptions {
  int in_flight = 64;  // requests given to the handler at a time
  size_t max_line_bytes = 8 << 20;
};
struct BatchCounts {
  int64_t requests = 0, completed = 0, failed = 0;
};

// Answers come in the order of the lines; empty lines are skipped. A bad line never stops the
// others. Errors: the output takes no more.
Result<BatchCounts> run_batch(HttpHandler& handler, std::istream& in, std::ostream& out,
                              const BatchOptions& options);

}  // namespace pagefold
