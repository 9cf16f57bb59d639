// What the figures of a run depend on, apart from the grid: the first line of a results file.
#pragma once

#include <string>

#include "base/json.h"
#include "eval/eval.h"

namespace pagefold::eval {

// Reads the model's headers, no weights. Errors: what its context has no room for. Returns the
// digests of the calibration files that policies may use: {"NAME": "0123456789abcdef"}.
Result<Json> look_into_model(const EvalOptions& options);

// data: the text or the cases that are read.
Json settings_of(const EvalOptions& options, const std::string& data, const Json& calibrations);

}  // namespace pagefold::eval
