// /api/state and /api/policies: what the dashboard shows.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "server/engine_port.h"
#include "server/http.h"
#include "server/openai_request.h"

namespace pagefold {

// The picture as JSON; docs/dashboard.md describes it.
std::string state_json(const EngineState& state, const ApiModel& model, const EnginePort& engine);
// Answers with the engine's next picture, at the end of its running step. The engine and the model
// outlive the responder.
void send_state(const ApiModel& model, EnginePort& engine,
                const std::shared_ptr<Responder>& responder);
// {"policies": [{"name", "budget": whether it takes one, "preset": bool}], "default": NAME}
std::string policies_json(const EngineConfig& config);

}  // namespace pagefold
