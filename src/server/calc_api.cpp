#include "server/calc_api.h"

#include <algorithm>

#include "calc/presets.h"
#include "pagefold/calc.h"

namespace pagefold {
namespace {

bool given(const Json& body, const char* field) {
  const auto it = body.find(field);
  return it != body.end() && !it->is_null();
}

// The server's compression in the calculator's words: files of statistics have no names there, and
// it counts as if there were some.
KvOptions words_of_server(KvOptions kv) {
  kv.erase("calibration");
  const auto policy = kv.find("policy");
  if (policy == kv.end()) return kv;
  constexpr std::string_view kKey = "calibration=";
  std::string& text = policy->second;
  const size_t colon = text.find(':');
  for (size_t at = colon; at != std::string::npos; at = text.find(',', at + 1)) {
    if (std::string_view(text).substr(at + 1, kKey.size()) != kKey) continue;
    const size_t end = std::min(text.find(',', at + 1), text.size());
    text.erase(at + 1, std::min(end + 1, text.size()) - (at + 1));  // with the comma after it
    break;
  }
  if (colon != std::string::npos && (text.back() == ',' || text.back() == ':')) text.pop_back();
  return kv;
}

// Types of keys, values and groups belong together: who names one of them means the calculator's
// own rules for those that follow from it.
void take_types(const Json& body, const KvFormat& format, CalcRequest& r) {
  if (given(body, "kv_cache_dtype")) return;
  r.kv_cache_dtype = dtype_name(format.k);
  if (given(body, "kv_cache_dtype_v")) return;
  r.kv_cache_dtype_v = dtype_name(format.v);
  if (!given(body, "kv_cache_group")) r.kv_cache_group = format.group;
}

void take_servers_settings(const Json& body, const EngineConfig& server, CalcRequest& r) {
  take_types(body, server.kv_format, r);
  if (!given(body, "block_size")) r.block_size = server.block_size;
  if (!given(body, "max_num_batched_tokens")) {
    r.max_num_batched_tokens = server.max_num_batched_tokens;
  }
  if (!given(body, "max_num_seqs")) r.max_num_seqs = server.max_num_seqs;
  if (!given(body, "tokens") && r.lengths.empty() && server.max_model_len > 0) {
    r.tokens = server.max_model_len;
  }
  if (!given(body, "kv")) r.kv = words_of_server(server.kv);
}

}  // namespace

std::optional<ApiError> calc_answer(const Json& body, const ApiModel& model,
                                    const EngineConfig& server, std::string& out) {
  auto request = calc_request_from_json(dump_json(body));
  if (!request.ok()) return api_error(request.status());
  const bool served =
      (request->model.empty() && request->config_json.empty() && !request->shape.any()) ||
      std::find(model.names.begin(), model.names.end(), request->model) != model.names.end();
  if (served) {
    if (model.path.empty()) {
      return ApiError{.message =
                          "model: the served model has no file; name a preset, or give a "
                          "config or a shape.",
                      .param = "model"};
    }
    request->model = model.path;
    if (request->engine == CalcRequest().engine) take_servers_settings(body, server, *request);
  } else if (!request->model.empty() && calc::find_preset(request->model) == nullptr) {
    return ApiError{.message =
                        "model: neither the served model nor a preset; GET /api/calc lists "
                        "the presets. For another model give its config.json as config.",
                    .param = "model"};
  }
  auto result = calculate(*request);
  if (!result.ok()) {
    // A model that cannot be calculated is the request's fault, not a missing feature.
    ApiError e = api_error(result.status());
    if (e.status == 501 || e.status == 500) e.status = 400;
    return e;
  }
  if (served) result->model = model.names.front();
  out = calc_result_to_json(*result);
  return std::nullopt;
}

std::string calc_choices(const ApiModel& model) {
  const Json out = {
      {"presets", calc_presets()},
      {"served",
       model.path.empty() || model.names.empty() ? Json(nullptr) : Json(model.names.front())}};
  return dump_json(out);
}

}  // namespace pagefold
