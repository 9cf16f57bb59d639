// The query statistics that triattention can name: those given at start, and the model's own.
#pragma once

#include "api/loaded_model.h"
#include "base/result.h"
#include "engine/engine.h"
#include "pagefold/options.h"

namespace pagefold {

// Reads the files of options.kv_calibrations ("NAME=PATH") and, as "auto", the file beside the
// model (MODEL.gguf.calibration, or FOLDER/triattention.calibration) if there is one, checks each
// against the model, and lets the config find them. A file that does not match the model is an
// error.
Status register_calibrations(const EngineOptions& options, const ModelShape& shape,
                             EngineConfig& config);

}  // namespace pagefold
