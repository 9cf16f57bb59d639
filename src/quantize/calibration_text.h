// The text that quantising looks at: some of it to calibrate on, some held out to measure with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace pagefold {

struct CalibrationText {
  // Windows, each read from position 0.
  std::vector<std::vector<int32_t>> calibration, held_out;
};
struct CalibrationTextOptions {
  std::string model;      // file or folder
  int64_t tokens = 0;     // to calibrate on; 0: none
  int64_t held_out = 0;   // to measure with; 0: none
  int64_t window = 2048;  // most tokens of a window
  uint64_t seed = 0;
  int threads = 0;
  std::string isa = "auto";
  std::function<void(uint64_t, uint64_t)> progress;
  std::function<bool()> stop;  // both may be empty
};

// The end of the text, at most an eighth of it, is held out. Error: too short a text.
Result<CalibrationText> tokens_of_text(const std::string& text,
                                       const CalibrationTextOptions& options);
// The model writes texts side by side at temperature 1; some of them are held out. The same options
// give the same text.
Result<CalibrationText> own_text(const CalibrationTextOptions& options);

}  // namespace pagefold
