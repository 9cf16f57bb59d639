// Where things are kept that can be fetched or made again.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace pagefold {

// Pulled models: $PAGEFOLD_CACHE, else $XDG_CACHE_HOME/pagefold/models, else
// ~/.cache/pagefold/models. Error: none of the three is set.
Result<std::filesystem::path> model_cache();
// Query statistics: $PAGEFOLD_CACHE/calibrations, else .../pagefold/calibrations beside the models.
Result<std::filesystem::path> calibration_cache();

}  // namespace pagefold
