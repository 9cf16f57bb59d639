// The line a request leaves in the log: words of the form name=value, which log collectors split.
#pragma once

#include <cstdint>
#include <string>

#include "base/log.h"
#include "server/http.h"

namespace pagefold {

class RequestLog {
 public:
  // added: the headers that every answer to it carries; a traceparent among them is logged.
  RequestLog(const HttpRequest& request, const HttpHeaders& added);
  // complete: false when the client left before the end.
  void write(int status, size_t body_bytes, bool complete) const;

 private:
  log::Level level_;
  int64_t begin_ns_;
  std::string text_;
};

}  // namespace pagefold
