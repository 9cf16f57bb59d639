// The engine's figures in the Prometheus text format (version 0.0.4). Names that vLLM has too carry
// its prefix and labels, so that existing dashboards work; ours begin with pagefold_.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/http_counts.h"
#include "server/request_metrics.h"

namespace pagefold {

// http_requests: answers so far.
std::string metrics_text(const EngineMetrics& metrics, const EngineConfig& config,
                         std::string_view model_name,
                         const std::vector<HttpCounts::Row>& http_requests,
                         const RequestFigures& requests = {});

}  // namespace pagefold
