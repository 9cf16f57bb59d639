#include <fstream>

#include "base/log.h"
#include "bench/load.h"
#include "bench/local.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pull/cache.h"

namespace pagefold {
namespace {

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  return file ? ok_status() : io_error("{}: cannot be written", path);
}

Status print_bench(const BenchCommand& command) {
  if (!command.output.empty()) {
    for (const char* suffix : {".json", ".html"}) PF_TRY(check_writable(command.output + suffix));
  }
  const auto progress = [](const std::string& what) { log::info("{}", what); };
  bench::BenchReport report;
  if (!command.load.urls.empty()) {
    bench::LoadOptions load = command.load;
    load.command = command.line;
    load.progress = progress;
    if (command.local.tokens > 0) load.tokens = command.local.tokens;
    PF_ASSIGN(report, bench::run_load(load));
  } else {
    bench::LocalOptions local = command.local;
    local.command = command.line;
    local.progress = progress;
    PF_ASSIGN(local.engine.model, resolve_model(local.engine.model));
    PF_ASSIGN(report, bench::run_local(local));
  }
  if (!command.output.empty()) {
    PF_TRY(write_text(command.output + ".json", report.json + "\n"));
    PF_TRY(write_text(command.output + ".html", report.html));
  }
  print_text(stdout, command.json ? report.json + "\n" : report.text);
  return stdout_ok() ? ok_status() : io_error("standard output does not take the answer");
}

}  // namespace

int run_bench(const BenchCommand& command) {
  const Status done = print_bench(command);
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
