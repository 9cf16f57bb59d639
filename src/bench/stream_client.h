// One streamed completion of an OpenAI server over plain HTTP, with the time of every piece.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pagefold::bench {

struct ServerUrl {
  std::string text, host, port, path;  // path: before /v1, without a slash at its end
};
// http://HOST[:PORT][/PATH], with or without /v1 at the end.
Result<ServerUrl> parse_server_url(std::string_view url);

struct StreamAnswer {
  std::vector<double> piece_s;  // since the request was sent, of each event with text
  double end_s = 0;
  int64_t prompt_tokens = 0, completion_tokens = 0;  // as the server counts; 0: it does not say
  Json kv;                                           // usage.kv, or null
};

// POSTs `body` (JSON with "stream": true) and reads the answer to its end. Blocks.
// kUnavailable: no connection; kFailedPrecondition: the server's own refusal, with its message.
Result<StreamAnswer> stream_completion(const ServerUrl& server, std::string_view path,
                                       std::string_view body, std::string_view api_key,
                                       double timeout_s);
// The body of GET path; for /v1/models.
Result<std::string> fetch(const ServerUrl& server, std::string_view path, std::string_view api_key);

// What came of an HTTP answer so far: head, then body pieces. Exposed for tests.
class HttpAnswer {
 public:
  // Takes bytes in the order they came; body bytes without their framing are appended to `body`.
  // kDataLoss: no HTTP.
  Status feed(std::string_view bytes, std::string& body);
  int status() const { return status_; }
  bool done() const { return done_; }
  // The connection was closed: true when nothing is missing.
  bool end() const { return done_ || (status_ != 0 && !chunked_ && left_ < 0); }

 private:
  Status read_head();
  Status read_chunks(std::string& body);
  std::string in_;
  int status_ = 0;
  bool chunked_ = false, done_ = false;
  int64_t left_ = -1;  // of the body, or of the chunk; -1: to the end, or a size line comes
};

}  // namespace pagefold::bench
