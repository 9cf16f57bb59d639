#include "server/openai_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/json.h"
#include "base/log.h"
#include "base/system.h"
#include "server/calc_api.h"
#include "server/metrics_text.h"
#include "server/openai_answer.h"
#include "server/request_ids.h"
#include "server/responses.h"
#include "server/state_api.h"
#include "server/web_pages.h"

namespace pagefold {
namespace {

// A body whose parsing may leave the allocator with many times the usual memory.
constexpr size_t kLargeBody = 256 << 10;

const HttpHeaders kJson = {{"Content-Type", "application/json"}};

// Time does not depend on where the texts differ.
bool equal_in_constant_time(std::string_view expected, std::string_view got) {
  unsigned difference = expected.size() == got.size() ? 0 : 1;
  for (size_t i = 0; i < expected.size(); ++i) {
    const char g = i < got.size() ? got[i] : '\0';
    difference |= static_cast<unsigned char>(expected[i]) ^ static_cast<unsigned char>(g);
  }
  return difference == 0;
}

// "%2F" -> "/"; a bad escape stays as it is.
std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Whether the body may ask for a grammar: making one can take a while.
bool may_constrain(std::string_view body) {
  for (const std::string_view word :
       {"response_format", "json_", "guided_", "structured_outputs", "tool_choice"}) {
    if (body.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// nullopt: the body may be read as JSON. An absent type is taken for JSON; a form is what a browser
// can send across origins, and what curl -d sends when the header is forgotten.
std::optional<ApiError> check_media(const HttpRequest& request) {
  const std::string_view encoding = request.header("Content-Encoding");
  if (!encoding.empty() && !equal_ignoring_case(encoding, "identity")) {
    return ApiError{
        .status = 415, .message = "Compressed request bodies are not accepted.", .param = {}};
  }
  std::string_view type = request.header("Content-Type");
  type = type.substr(0, std::min(type.find(';'), type.size()));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  if (type.empty() || equal_ignoring_case(type, "application/json")) return std::nullopt;
  return ApiError{
      .status = 415,
      .message = "The request body must be JSON: send the header Content-Type: application/json.",
      .param = {}};
}

// The body of an answer of /tokenize: it may be 30 times as long as the request, so it is written
// where the request is parsed, not on the I/O thread.
std::optional<ApiError> answer_tokenize(const Json& body, const ApiModel& model, std::string& out) {
  TokenizeRequest parsed;
  if (auto error = parse_tokenize(body, model, parsed)) return error;
  out = fmt::format(R"({{"count":{},"max_model_len":{},"tokens":)", parsed.tokens.size(),
                    model.max_model_len);
  append_token_ids(out, parsed.tokens);
  out += ",\"token_strs\":";
  if (parsed.return_token_strs) {
    out += '[';
    for (size_t i = 0; i < parsed.tokens.size(); ++i) {
      if (i) out += ',';
      append_json_string(out, model.tokenizer->piece(parsed.tokens[i]));
    }
    out += ']';
  } else {
    out += "null";
  }
  out += '}';
  return std::nullopt;
}

std::optional<ApiError> answer_detokenize(const Json& body, const ApiModel& model,
                                          std::string& out) {
  std::vector<int32_t> tokens;
  if (auto error = parse_detokenize(body, model, tokens)) return error;
  out = "{\"prompt\":";
  append_json_string(out, model.tokenizer->decode(tokens, false));
  out += '}';
  return std::nullopt;
}

}  // namespace

const std::array<OpenAiApi::Route, 16> OpenAiApi::kRoutes = {{
    {"/health", "GET, HEAD, OPTIONS", true, &OpenAiApi::health},
    {"/ping", "GET, HEAD, POST, OPTIONS", true, &OpenAiApi::health},
    {"/version", "GET, HEAD, OPTIONS", true, &OpenAiApi::version},
    {"/metrics", "GET, HEAD, OPTIONS", true, &OpenAiApi::metrics},
    {"/v1/models", "GET, HEAD, OPTIONS", false, &OpenAiApi::models},
    {"/v1/models/", "GET, HEAD, OPTIONS", false, &OpenAiApi::one_model},  // a prefix
    {"/v1/completions", "POST, OPTIONS", false, &OpenAiApi::completions},
    {"/v1/chat/completions", "POST, OPTIONS", false, &OpenAiApi::chat},
    {"/tokenize", "POST, OPTIONS", false, &OpenAiApi::tokenize},
    {"/detokenize", "POST, OPTIONS", false, &OpenAiApi::detokenize},
    {"/v1/embeddings", "POST, OPTIONS", false, &OpenAiApi::not_offered},
    {"/v1/responses", "POST, OPTIONS", false, &OpenAiApi::responses},
    {"/v1/audio/", "POST, OPTIONS", false, &OpenAiApi::not_offered},  // a prefix
    {"/api/calc", "GET, HEAD, POST, OPTIONS", false, &OpenAiApi::calc},
    {"/api/state", "GET, HEAD, OPTIONS", false, &OpenAiApi::state},
    {"/api/policies", "GET, HEAD, OPTIONS", false, &OpenAiApi::policies},
}};

OpenAiApi::OpenAiApi(ApiModel model, EnginePort& engine, ApiOptions options)
    : model_(std::move(model)),
      engine_(engine),
      options_(std::move(options)),
      created_(static_cast<int64_t>(std::time(nullptr))) {}

std::string OpenAiApi::error_body(int status, std::string_view message) const {
  counts_.add("none", "none", status);
  return ApiError{.status = status, .message = std::string(message), .param = {}}.body();
}

bool OpenAiApi::authorized(const HttpRequest& request) const {
  std::string_view value = request.header("Authorization");
  const bool bearer = value.size() > 7 && equal_ignoring_case(value.substr(0, 7), "bearer ");
  return equal_in_constant_time(options_.api_key, bearer ? value.substr(7) : "");
}

bool OpenAiApi::allows_origin(std::string_view origin) const {
  return !origin.empty() &&
         std::any_of(options_.allowed_origins.begin(), options_.allowed_origins.end(),
                     [&](const std::string& a) { return a == "*" || a == origin; });
}

// With allowed origins, CORS (the Fetch standard) is put around the routes. The answer depends on
// the Origin, so caches are told; credentials other than the Authorization header are not allowed.
void OpenAiApi::handle(HttpRequest request, ResponderPtr to) {
  const auto responder = std::make_shared<CountedResponder>(std::move(to), counts_, request.method);
  const std::string origin(request.header("Origin"));
  if (options_.allowed_origins.empty()) return route(request, responder);
  responder->add_header("Vary", "Origin");
  if (!allows_origin(origin)) return route(request, responder);
  responder->add_header("Access-Control-Allow-Origin", origin);
  responder->add_header("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, traceparent");
  if (request.method == "OPTIONS") {
    responder->add_header("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    responder->add_header("Access-Control-Allow-Headers",
                          "Authorization, Content-Type, X-Request-Id, traceparent");
    responder->add_header("Access-Control-Max-Age", "600");
  }
  route(request, responder);
}

void OpenAiApi::route(const HttpRequest& request,
                      const std::shared_ptr<CountedResponder>& responder) {
  responder->set_handler("/");  // the dashboard's files
  if (send_web_page(request, *responder)) return;
  const std::string_view path = request.path();
  const auto found = std::find_if(kRoutes.begin(), kRoutes.end(), [&](const Route& r) {
    return r.path == path ||
           (r.path.ends_with('/') && path.size() > r.path.size() && path.starts_with(r.path));
  });
  responder->set_handler(found == kRoutes.end() ? "none" : found->path);
  if (found == kRoutes.end()) {
    return send_error(*responder,
                      {.status = 404, .message = "There is no such path.", .param = {}});
  }
  if (request.method == "OPTIONS") {
    return responder->send(204, {{"Allow", std::string(found->methods)}}, "");
  }
  if (!options_.api_key.empty() && !found->open && !authorized(request)) {
    return responder->send(401,
                           {{"Content-Type", "application/json"}, {"WWW-Authenticate", "Bearer"}},
                           R"({"error":"Unauthorized"})");
  }
  // Methods are listed with ", "; a method from the wire has no space or comma in it.
  if (fmt::format(", {},", found->methods).find(fmt::format(" {},", request.method)) ==
      std::string::npos) {
    const ApiError e{.status = 405,
                     .message = fmt::format("This path answers {} only.", found->methods),
                     .param = {}};
    return responder->send(
        405, {{"Content-Type", "application/json"}, {"Allow", std::string(found->methods)}},
        e.body());
  }
  (this->*found->answer)(request, responder);
}

// Checks the body, turns it into Parsed by `parse` (on the worker when it is long), then calls
// `use` on the connection's executor.
template <class Parsed, class Parse, class Use>
void OpenAiApi::parse_then(const HttpRequest& request, const ResponderPtr& r, Parse parse, Use use,
                           bool always_on_worker) {
  if (auto error = check_media(request)) return send_error(*r, *error);
  struct Work {
    std::string body;
    Parsed parsed;
    std::optional<ApiError> error;
    std::atomic<bool> gone{false};
  };
  auto work = std::make_shared<Work>();
  work->body = request.body;
  const auto prepare = [this, work, parse] {
    try {
      Json json;
      work->error = parse_body(work->body, json);
      if (!work->error) work->error = parse(json, model_, work->parsed);
    } catch (const std::exception& e) {  // out of memory: this request alone fails
      log::error("a request could not be prepared: {}", e.what());
      work->error =
          ApiError{.status = 500, .message = "The request could not be prepared.", .param = {}};
    }
  };
  const auto answer = [work, use](const ResponderPtr& responder) {
    if (work->error) return send_error(*responder, *work->error);
    use(std::move(work->parsed), responder);
  };
  if (!always_on_worker && work->body.size() <= options_.inline_body_bytes &&
      !may_constrain(work->body)) {
    prepare();
    return answer(r);
  }
  r->on_closed([work] { work->gone = true; });
  worker_.post([work, prepare, answer, r] {
    if (work->gone) return;
    prepare();
    const bool large = work->body.size() > kLargeBody;
    r->post([work, answer, r] {
      if (!work->gone) answer(r);
    });
    if (large) return_free_memory();
  });
}

void OpenAiApi::health(const HttpRequest&, const ResponderPtr& r) { r->send(200, {}, ""); }

void OpenAiApi::version(const HttpRequest&, const ResponderPtr& r) {
  r->send(200, kJson, R"({"version":")" PAGEFOLD_VERSION R"("})");
}

void OpenAiApi::metrics(const HttpRequest&, const ResponderPtr& r) {
  r->send(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
          metrics_text(engine_.metrics(), engine_.config(), model_.names.front(), counts_.rows(),
                       model_.metrics ? model_.metrics->figures() : RequestFigures()));
}

std::string OpenAiApi::model_json(const std::string& name) const {
  std::string quoted;
  append_json_string(quoted, name);
  std::string root;
  append_json_string(root, model_.names.front());
  return fmt::format(
      R"({{"id":{},"object":"model","created":{},"owned_by":"pagefold","root":{},"parent":null,"max_model_len":{},"permission":[]}})",
      quoted, created_, root, model_.max_model_len);
}

void OpenAiApi::models(const HttpRequest&, const ResponderPtr& r) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < model_.names.size(); ++i) {
    if (i) out += ',';
    out += model_json(model_.names[i]);
  }
  r->send(200, kJson, out + "]}");
}

void OpenAiApi::one_model(const HttpRequest& request, const ResponderPtr& r) {
  const std::string name =
      percent_decoded(request.path().substr(std::string_view("/v1/models/").size()));
  if (std::find(model_.names.begin(), model_.names.end(), name) == model_.names.end()) {
    return send_error(
        *r, {.status = 404, .message = "The model does not exist here.", .param = "model"});
  }
  r->send(200, kJson, model_json(name));
}

void OpenAiApi::answer(const HttpRequest& request, const ResponderPtr& r, ParseCompletion parse) {
  parse_then<CompletionRequest>(
      request, r, parse, [this, id = request.id](CompletionRequest parsed, const ResponderPtr& to) {
        parsed.id = id;
        AnswerJob::start(model_, engine_, std::move(parsed), to);
      });
}

void OpenAiApi::completions(const HttpRequest& request, const ResponderPtr& r) {
  answer(request, r, &parse_completion);
}

void OpenAiApi::chat(const HttpRequest& request, const ResponderPtr& r) {
  answer(request, r, &parse_chat);
}

void OpenAiApi::responses(const HttpRequest& request, const ResponderPtr& r) {
  parse_then<ResponsesRequest>(
      request, r, &parse_responses,
      [this, id = request.id.empty() ? new_id("") : request.id](ResponsesRequest parsed,
                                                                const ResponderPtr& to) {
        parsed.chat.id = id;
        AnswerJob::start(model_, engine_, std::move(parsed.chat),
                         responses_responder(to, std::move(parsed.echo), model_.names.front(), id));
      });
}

void OpenAiApi::tokenize(const HttpRequest& request, const ResponderPtr& r) {
  parse_then<std::string>(
      request, r, &answer_tokenize,
      [](std::string answer, const ResponderPtr& to) { to->send(200, kJson, std::move(answer)); });
}

void OpenAiApi::not_offered(const HttpRequest& request, const ResponderPtr& r) {
  const bool embeddings = request.path().starts_with("/v1/embeddings");
  send_error(*r, {.status = 501,
                  .message = fmt::format("{} not offered by this server; it has "
                                         "/v1/chat/completions, /v1/completions and /v1/responses.",
                                         embeddings ? "Embeddings are" : "Audio is"),
                  .param = {}});
}

void OpenAiApi::detokenize(const HttpRequest& request, const ResponderPtr& r) {
  parse_then<std::string>(
      request, r, &answer_detokenize,
      [](std::string answer, const ResponderPtr& to) { to->send(200, kJson, std::move(answer)); });
}

void OpenAiApi::calc(const HttpRequest& request, const ResponderPtr& r) {
  if (request.method != "POST") return r->send(200, kJson, calc_choices(model_));
  const auto parse = [this](const Json& body, const ApiModel& model, std::string& out) {
    return calc_answer(body, model, engine_.config(), out);
  };
  parse_then<std::string>(
      request, r, parse,
      [](std::string answer, const ResponderPtr& to) { to->send(200, kJson, std::move(answer)); },
      /*always_on_worker=*/true);
}

void OpenAiApi::state(const HttpRequest&, const ResponderPtr& r) { send_state(model_, engine_, r); }

void OpenAiApi::policies(const HttpRequest&, const ResponderPtr& r) {
  r->send(200, kJson, policies_json(engine_.config()));
}

}  // namespace pagefold
