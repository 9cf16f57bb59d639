// The query statistics that triattention can name: those given at start, and the model's own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "kv/model.h"
#include "model/load.h"
#include "pagefold/options.h"

namespace pagefold {

struct CalibrationFile {
  std::string name;   // that a request says
  std::string entry;  // of options.kv_calibrations; empty: the model's own
  std::filesystem::path path;
  std::string bytes;
};
// The files of options.kv_calibrations, and the model's own one as "auto", not yet parsed. The
// model's own: the file beside it (MODEL.gguf.calibration, or FOLDER/triattention.calibration),
// else KEY.calibration in the cache folder, KEY the weights_key() of its tensors. Neither is there:
// "auto" is left out.
Result<std::vector<CalibrationFile>> read_calibration_files(const EngineOptions& options,
                                                            const ModelFiles& files);

// Reads them, checks each against the model, and lets the config find them. A file that does not
// match the model is an error.
Status register_calibrations(const EngineOptions& options, const ModelFiles& files,
                             const KvModel& model, EngineConfig& config);

// Where `pagefold calibrate -o OUTPUT` writes. "": the cache folder, under the key of the weights,
// where "auto" finds it; a word of letters, digits, - and _: the cache folder, under that name,
// where
// --kv-calibration NAME finds it; else a path.
Result<std::filesystem::path> calibration_output(const std::string& output,
                                                 const ModelFiles& files);

}  // namespace pagefold
