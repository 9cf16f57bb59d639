#include "eval/eval.h"

#include <memory>

#include "base/progress.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pull/cache.h"

namespace pagefold {
namespace {

Status print_eval(const EvalCommand& command) {
  eval::EvalOptions options = command.options;
  PF_ASSIGN(options.engine.model, resolve_model(options.engine.model));
  if (!options.output.empty()) {
    for (const char* suffix : {".json", ".html"}) PF_TRY(check_writable(options.output + suffix));
  }
  std::unique_ptr<Progress> bar;
  options.progress = [&](int64_t done, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>("evaluating", static_cast<uint64_t>(total));
    bar->set(static_cast<uint64_t>(done));
  };
  PF_ASSIGN(const eval::EvalReport report, eval::run_eval(options));
  bar.reset();
  print_text(stdout, command.json ? report.json + "\n" : report.text);
  return stdout_ok() ? ok_status() : io_error("standard output does not take the answer");
}

}  // namespace

int run_eval(const EvalCommand& command) {
  const Status done = print_eval(command);
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
