#include "server/api_error.h"

#include <algorithm>

#include "base/json.h"

namespace pagefold {
namespace {

int http_status(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kDataLoss:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return 503;
    case absl::StatusCode::kUnimplemented:
      return 501;
    default:
      return 500;
  }
}

bool is_field_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' ||
         c == ']';
}

}  // namespace

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "AuthenticationError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 408:
      return "RequestTimeoutError";
    case 413:
      return "RequestTooLargeError";
    case 415:
      return "UnsupportedMediaTypeError";
    case 422:
      return "UnprocessableEntityError";
    case 429:
      return "RateLimitError";
    case 500:
      return "InternalServerError";
    case 501:
      return "NotImplementedError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return "BadRequestError";
  }
}

std::string ApiError::body() const {
  std::string out = "{\"error\":{\"message\":";
  append_json_string(out, message);
  out += ",\"type\":\"";
  out += error_type(status);
  out += "\",\"param\":";
  if (param.empty()) {
    out += "null";
  } else {
    append_json_string(out, param);
  }
  out += fmt::format(",\"code\":{}}}}}", status);
  return out;
}

ApiError api_error(const Status& status) {
  ApiError e{.status = http_status(status.code()), .message = message_of(status), .param = {}};
  const size_t colon = e.message.find(": ");
  if (colon != std::string::npos && colon > 0 &&
      std::all_of(e.message.begin(), e.message.begin() + static_cast<ptrdiff_t>(colon),
                  is_field_char)) {
    e.param = e.message.substr(0, colon);
  }
  return e;
}

}  // namespace pagefold
