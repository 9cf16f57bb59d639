#include "base/cache_folder.h"

#include <cstdlib>

namespace pagefold {
namespace {

namespace fs = std::filesystem;

fs::path from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? fs::path(value) : fs::path();
}

Result<fs::path> shared_folder() {
  if (const fs::path xdg = from_environment("XDG_CACHE_HOME"); !xdg.empty()) {
    return xdg / "pagefold";
  }
  if (const fs::path home = from_environment("HOME"); !home.empty()) {
    return home / ".cache" / "pagefold";
  }
  return bad_input("no place for models: set PAGEFOLD_CACHE to a folder");
}

}  // namespace

Result<fs::path> model_cache() {
  if (const fs::path own = from_environment("PAGEFOLD_CACHE"); !own.empty()) {
    return fs::absolute(own);
  }
  PF_ASSIGN(const fs::path shared, shared_folder());
  return shared / "models";
}

Result<fs::path> calibration_cache() {
  if (const fs::path own = from_environment("PAGEFOLD_CACHE"); !own.empty()) {
    return fs::absolute(own) / "calibrations";
  }
  PF_ASSIGN(const fs::path shared, shared_folder());
  return shared / "calibrations";
}

}  // namespace pagefold
