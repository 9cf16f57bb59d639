#include "bench/stream_client.h"

#include <fmt/format.h>

#include "bench/bandwidth.h"
#include "net/http_client.h"

namespace pagefold::bench {
namespace {

constexpr size_t kMostBody = 64 << 20;

// The server's own words, where it has any.
std::string refusal(const HttpReply& reply) {
  const auto json = parse_json(reply.failure);
  if (json.ok() && json->is_object() && json->contains("error")) {
    const Json& e = (*json)["error"];
    if (e.is_string()) return fmt::format("{}: {}", reply.status, e.get<std::string>());
    if (e.is_object() && e.contains("message") && e["message"].is_string()) {
      return fmt::format("{}: {}", reply.status, e["message"].get<std::string>());
    }
  }
  return fmt::format("{}", reply.status);
}

bool has_text(const Json& event) {
  if (!event.contains("choices") || !event["choices"].is_array() || event["choices"].empty()) {
    return false;
  }
  const Json& c = event["choices"][0];
  if (!c.is_object()) return false;
  if (c.contains("text")) return c["text"].is_string() && c["text"] != "";
  return c.contains("delta") && c["delta"].is_object() && c["delta"].contains("content") &&
         c["delta"]["content"].is_string() && c["delta"]["content"] != "";
}

int64_t count_of(const Json& usage, const char* key) {
  return usage.contains(key) && usage[key].is_number_integer() ? usage[key].get<int64_t>() : 0;
}

Status take_event(std::string_view text, double at, StreamAnswer& out) {
  PF_ASSIGN(const Json event, parse_json(text));
  if (!event.is_object()) return bad_data("an event is no object");
  if (event.contains("error")) return bad_data("the answer failed on the server");
  if (has_text(event)) out.piece_s.push_back(at);
  if (event.contains("usage") && event["usage"].is_object()) {
    const Json& usage = event["usage"];
    out.prompt_tokens = count_of(usage, "prompt_tokens");
    out.completion_tokens = count_of(usage, "completion_tokens");
    if (usage.contains("kv")) out.kv = usage["kv"];
  }
  return ok_status();
}

}  // namespace

Result<std::string> server_base(std::string_view url) {
  PF_ASSIGN(Url parsed, parse_url(url));
  std::string& path = parsed.path;
  while (path.ends_with('/')) path.pop_back();
  if (path.ends_with("/v1")) path.erase(path.size() - 3);
  return parsed.text();
}

Result<StreamAnswer> stream_completion(const std::string& url, std::string_view body,
                                       std::string_view api_key, double timeout_s) {
  StreamAnswer out;
  const double start = seconds();
  std::string got;
  HttpSink sink;
  sink.body = [&](std::string_view piece) -> Status {
    got += piece;
    for (size_t end; (end = got.find('\n')) != std::string::npos; got.erase(0, end + 1)) {
      std::string_view line(got.data(), end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.starts_with("data: ") || line == "data: [DONE]") continue;
      PF_TRY(take_event(line.substr(6), seconds() - start, out));
    }
    return got.size() > kMostBody ? bad_data("{}: the answer is too long", url) : ok_status();
  };
  PF_ASSIGN(const HttpReply reply,
            http_post({url, std::string(api_key), std::string(body), timeout_s}, sink));
  if (reply.status != 200) return absl::FailedPreconditionError(refusal(reply));
  out.end_s = seconds() - start;
  return out;
}

Result<std::string> fetch(const std::string& url, std::string_view api_key) {
  HttpReply reply;
  HttpGet get;
  get.url = url;
  get.token = api_key;
  PF_ASSIGN(std::string body, http_get_text(get, kMostBody, reply));
  if (reply.status != 200) return absl::FailedPreconditionError(refusal(reply));
  return body;
}

}  // namespace pagefold::bench
