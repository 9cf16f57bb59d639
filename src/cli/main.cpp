// One binary, one file a subcommand.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <new>
#include <system_error>
#include <utility>

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

// A standard descriptor that the caller closed would be handed to the next file opened: the spill
// file or a socket would then get the log's lines. It is held by a file that fails as it did
// before: input that cannot be read, output that cannot be written.
bool hold_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1) continue;
    // The lowest free number is the one to hold, as those below are held by now.
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return false;
  }
  return true;
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

// Where the system has no room for a few bytes or another thread, all ends; but it says so.
int run_or_say_why(std::vector<std::string> arguments) {
  try {
    return run_arguments(std::move(arguments));
  } catch (const std::bad_alloc&) {
    return report(exhausted("no memory is left"));
  } catch (const std::system_error& e) {
    return report(exhausted("the system refuses: {}", e.what()));
  }
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  if (!pagefold::hold_standard_descriptors()) return pagefold::kFailed;
  // A reader that leaves (a closed pipe) is a failed write, not a death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file that may not grow any more
  return pagefold::run_or_say_why(std::vector<std::string>(argv + 1, argv + argc));
}
