#include "bench/stream_client.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "bench/bandwidth.h"
#include "net/http_client.h"

namespace pagefold::bench {
namespace {

constexpr size_t kMostBody = 64 << 20;
constexpr int64_t kMostCount = int64_t{1} << 40;  // whatever a server says

// The server's own words, where it has any: {"error": "..."} or {"error": {"message": "..."}}.
std::string own_words(const Json& answer) {
  if (!answer.is_object() || !answer.contains("error")) return {};
  const Json& e = answer["error"];
  if (e.is_string()) return e.get<std::string>();
  const bool said = e.is_object() && e.contains("message") && e["message"].is_string();
  return said ? e["message"].get<std::string>() : std::string();
}

Status refusal(const std::string& url, const HttpReply& reply) {
  const auto json = parse_json(reply.failure);
  const std::string words = json.ok() ? own_words(*json) : std::string();
  return absl::FailedPreconditionError(
      fmt::format("{}: status {}{}{}", url, reply.status, words.empty() ? "" : ": ", words));
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
  if (!usage.contains(key) || !usage[key].is_number_integer()) return 0;
  const Json& n = usage[key];
  const bool huge = n.is_number_unsigned() && n.get<uint64_t>() > uint64_t{kMostCount};
  return huge ? kMostCount : std::clamp<int64_t>(n.get<int64_t>(), 0, kMostCount);
}

Status take_event(std::string_view text, double at, StreamAnswer& out) {
  PF_ASSIGN(const Json event, parse_json(text));
  if (!event.is_object()) return bad_data("an event is no object");
  if (event.contains("error")) {
    const std::string words = own_words(event);
    return bad_data("the answer failed on the server{}{}", words.empty() ? "" : ": ", words);
  }
  ++out.events;
  if (has_text(event)) out.piece_s.push_back(at);
  if (event.contains("usage") && event["usage"].is_object()) {
    const Json& usage = event["usage"];
    out.prompt_tokens = count_of(usage, "prompt_tokens");
    out.completion_tokens = count_of(usage, "completion_tokens");
    if (usage.contains("kv") && usage["kv"].is_object()) {
      out.kv_peak_bytes = count_of(usage["kv"], "peak_bytes");
    }
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
  if (reply.status != 200) return refusal(url, reply);
  if (out.events == 0) return bad_data("{}: the answer is no stream of events", url);
  out.end_s = seconds() - start;
  return out;
}

Result<std::string> fetch(const std::string& url, std::string_view api_key, double timeout_s) {
  HttpReply reply;
  HttpGet get;
  get.url = url;
  get.token = api_key;
  get.total_s = timeout_s;
  PF_ASSIGN(std::string body, http_get_text(get, kMostBody, reply));
  if (reply.status != 200) return refusal(url, reply);
  return body;
}

}  // namespace pagefold::bench
