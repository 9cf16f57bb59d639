// What a client is told when its request fails: OpenAI's error object with vLLM's types.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

struct ApiError {
  int status = 400;
  std::string message;  // ours: never bytes of the request
  std::string param;    // the field at fault as a path ("messages[1].role"); "": null

  // {"error":{"message":...,"type":...,"param":...,"code":...}}
  std::string body() const;
};

// "BadRequestError", "NotFoundError" ...
std::string_view error_type(int status);

// A message that begins with "field: " gives the field as param. Codes: invalid argument, out of
// range, damaged data -> 400; resource exhausted -> 429; unavailable -> 503; unimplemented -> 501;
// else 500.
ApiError api_error(const Status& status);

}  // namespace pagefold
