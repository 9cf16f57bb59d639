// One streamed completion of an OpenAI server over HTTP, with the time of every piece.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagefold::bench {

// "http://HOST[:PORT][/PATH]" without "/v1" and slashes at its end: what paths are put behind.
Result<std::string> server_base(std::string_view url);

struct StreamAnswer {
  std::vector<double> piece_s;  // since the request was sent, of each event with text
  int64_t events = 0;
  double end_s = 0;
  int64_t prompt_tokens = 0, completion_tokens = 0;  // as the server counts; 0: it does not say
  int64_t kv_peak_bytes = 0;                         // of usage.kv; 0: it does not say
};

// POSTs `body` (JSON with "stream": true) and reads the answer to its end. Blocks.
// kUnavailable: no connection, or it was cut; kFailedPrecondition: the server's own refusal, with
// its message; kDeadlineExceeded: it took longer than timeout_s; kDataLoss: no stream of events.
Result<StreamAnswer> stream_completion(const std::string& url, std::string_view body,
                                       std::string_view api_key, double timeout_s);
// The body of a GET. Errors as above.
Result<std::string> fetch(const std::string& url, std::string_view api_key, double timeout_s);

}  // namespace pagefold::bench
