// The routes: which path is answered by what. START READING HERE.
//
//   GET  /health /ping /version /metrics /v1/models /v1/models/NAME
//   POST /v1/completions /v1/chat/completions /v1/responses /tokenize /detokenize
//   /v1/embeddings and the like are refused by name: the model writes text
//   GET, POST /api/calc; GET /api/state /api/policies
//   GET  / and /ui/*: the dashboard
//
// HEAD works where GET does; OPTIONS lists the methods. Without allowed origins there is no CORS:
// pages of other origins cannot read answers, and bodies must be application/json, so they cannot
// send requests either.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "server/engine_port.h"
#include "server/http.h"
#include "server/http_counts.h"
#include "server/openai_request.h"
#include "server/worker.h"

namespace pagefold {

struct ApiOptions {
  // Not empty: "Authorization: Bearer KEY" is asked for, except on /health, /ping, /version and
  // /metrics.
  std::string api_key;
  // Longer bodies are parsed and encoded on a thread of their own, so that they delay nobody.
  size_t inline_body_bytes = 16 << 10;
  // Pages of these origins may read answers and send requests; "*": any. None: no CORS.
  std::vector<std::string> allowed_origins = {};
};

class OpenAiApi final : public HttpHandler {
 public:
  // The engine, and what `model` points to, outlive the API.
  OpenAiApi(ApiModel model, EnginePort& engine, ApiOptions options);

  void handle(HttpRequest request, std::shared_ptr<Responder> responder) override;
  std::string error_body(int status, std::string_view message) const override;

 private:
  using ResponderPtr = std::shared_ptr<Responder>;
  struct Route {
    std::string_view path, methods;  // methods as in the Allow header
    bool open;                       // needs no key
    void (OpenAiApi::*answer)(const HttpRequest&, const ResponderPtr&);
  };
  static const std::array<Route, 16> kRoutes;

  void route(const HttpRequest& request, const std::shared_ptr<CountedResponder>& r);
  bool allows_origin(std::string_view origin) const;
  bool authorized(const HttpRequest& request) const;
  void health(const HttpRequest& request, const ResponderPtr& r);
  void version(const HttpRequest& request, const ResponderPtr& r);
  void metrics(const HttpRequest& request, const ResponderPtr& r);
  void models(const HttpRequest& request, const ResponderPtr& r);
  void one_model(const HttpRequest& request, const ResponderPtr& r);
  void completions(const HttpRequest& request, const ResponderPtr& r);
  void chat(const HttpRequest& request, const ResponderPtr& r);
  void responses(const HttpRequest& request, const ResponderPtr& r);
  void tokenize(const HttpRequest& request, const ResponderPtr& r);
  void detokenize(const HttpRequest& request, const ResponderPtr& r);
  void not_offered(const HttpRequest& request, const ResponderPtr& r);
  void calc(const HttpRequest& request, const ResponderPtr& r);
  void state(const HttpRequest& request, const ResponderPtr& r);
  void policies(const HttpRequest& request, const ResponderPtr& r);

  using ParseCompletion = std::optional<ApiError> (*)(const Json& body, const ApiModel& model,
                                                      CompletionRequest& out);
  void answer(const HttpRequest& request, const ResponderPtr& r, ParseCompletion parse);
  template <class Parsed, class Parse, class Use>
  void parse_then(const HttpRequest& request, const ResponderPtr& r, Parse parse, Use use,
                  bool always_on_worker = false);
  std::string model_json(const std::string& name) const;

  const ApiModel model_;
  EnginePort& engine_;
  const ApiOptions options_;
  const int64_t created_;
  mutable HttpCounts counts_;
  Worker worker_;  // last: its work uses the rest
};

}  // namespace pagefold
