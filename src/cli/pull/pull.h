// Brings a model into the cache folder.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace pagefold {

// Returns the path to load. A model that is already whole and checked is not fetched again.
Result<std::filesystem::path> pull_model(const std::string& name);

}  // namespace pagefold
