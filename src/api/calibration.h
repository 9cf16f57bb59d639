// Query statistics of a model for triattention: from a text, or from text that the model writes
// itself by sampling. Only running sums are kept, never queries.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "api/loaded_model.h"
#include "base/result.h"
#include "kv/calibration.h"

namespace pagefold {

struct CalibrationOptions {
  std::string text;       // empty: the model writes its own
  int64_t tokens = 0;     // most tokens; 0: 32,768 of a text, 8,192 of its own
  int64_t window = 2048;  // a text is read in windows of this many tokens, each from position 0
  int n_sequences = 8;    // written side by side
  uint64_t seed = 0;      // of what the model writes
  std::function<void(int64_t done, int64_t total)> progress;  // may be empty
};

// Initialises the model's cache and steps: the model serves nothing else afterwards. The same
// options give the same bytes. Errors: a text of fewer than 16 tokens, no memory.
Result<CalibrationStats> calibrate(LoadedModel& model, const CalibrationOptions& options);

}  // namespace pagefold
