// Names of requests: in answers, in the log, and in the headers X-Request-Id and traceparent.
#pragma once

#include <string>
#include <string_view>

namespace pagefold {

// prefix + 32 hexadecimal digits, never the same twice. Thread-safe.
std::string new_id(std::string_view prefix);

// Whether a client's X-Request-Id can be taken over: 1 to 128 letters, digits, '.', '_', ':', '-'.
bool usable_request_id(std::string_view id);

// Whether it is a traceparent of W3C Trace Context (version 00, or a later one that begins alike).
bool valid_traceparent(std::string_view value);

}  // namespace pagefold
