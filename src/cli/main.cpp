// One binary, one file a subcommand.
#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "cli/args.h"
#include "cli/output.h"

namespace pagefold {
namespace {

int run(const Action& action) {
  struct Runner {
    int operator()(const ShowText& c) const {
      print_text(stdout, c.text);
      return stdout_ok() ? kDone : kFailed;
    }
    int operator()(const ServeCommand& c) const { return run_serve(c); }
    int operator()(const RunBatchCommand& c) const { return run_run_batch(c); }
    int operator()(const GenerateCommand& c) const { return run_generate(c); }
    int operator()(const ChatCommand& c) const { return run_chat(c); }
    int operator()(const InspectCommand& c) const { return run_inspect(c); }
    int operator()(const PullCommand& c) const { return run_pull(c); }
    int operator()(const ReclaimCommand& c) const { return run_reclaim(c); }
    int operator()(const CalibrateCommand& c) const { return run_calibrate(c); }
    int operator()(const QuantizeCommand& c) const { return run_quantize(c); }
    int operator()(const CalcCommand& c) const { return run_calc(c); }
    int operator()(const EvalCommand& c) const { return run_eval(c); }
    int operator()(const BenchCommand& c) const { return run_bench(c); }
  };
  return std::visit(Runner{}, action);
}

int run_arguments(std::vector<std::string> arguments) {
  const auto parsed = parse_args(std::move(arguments));
  if (!parsed.ok()) {
    const int code = report(parsed.status());
    std::fputs("'pagefold --help' and 'pagefold SUBCOMMAND --help' show what there is.\n", stderr);
    return code;
  }
  const auto level = log::parse_level(parsed->log_level);
  if (!level.ok()) return report(level.status());
  log::set_level(*level);
  return run(parsed->action);
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  // A reader that leaves (a closed pipe) is a failed write, not a death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file that may not grow any more
  return pagefold::run_arguments(std::vector<std::string>(argv + 1, argv + argc));
}
