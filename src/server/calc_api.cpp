#include "server/calc_api.h"

#include <algorithm>

#include "calc/presets.h"
#include "pagefold/calc.h"

namespace pagefold {

std::optional<ApiError> calc_answer(const Json& body, const ApiModel& model, std::string& out) {
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
