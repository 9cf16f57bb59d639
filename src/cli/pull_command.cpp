#include "base/json.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pull/cache.h"
#include "cli/pull/pull.h"

namespace pagefold {

int run_pull(const PullCommand& command) {
  const auto path = pull_model(command.model);
  if (!path.ok()) return report(path.status());
  if (command.json) {
    const Json object = {
        {"model", command.model.empty() ? std::string(kDefaultModel) : command.model},
        {"path", path->string()}};
    print_text(stdout, dump_json(object) + "\n");
  } else {
    print_text(stdout, path->string() + "\n");
  }
  return stdout_ok() ? kDone : report(io_error("standard output does not take the path"));
}

}  // namespace pagefold
