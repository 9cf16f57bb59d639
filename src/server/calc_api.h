// /api/calc: `pagefold calc` over HTTP, the same fields and the same JSON.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "engine/engine.h"
#include "server/api_error.h"
#include "server/openai_request.h"

namespace pagefold {

// A model is the served one (by its name, or none named), a preset, "config": {...} or "shape":
// {...}; requests never name paths. What a request for the served model leaves out is as the server
// runs it. May take a second: not for a thread that others wait for.
std::optional<ApiError> calc_answer(const Json& body, const ApiModel& model,
                                    const EngineConfig& server, std::string& out);
// {"presets": [...], "served": NAME}
std::string calc_choices(const ApiModel& model);

}  // namespace pagefold
