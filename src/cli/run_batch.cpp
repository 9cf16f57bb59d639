#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "api/engine_setup.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pull/cache.h"
#include "engine/engine.h"
#include "server/server.h"

namespace pagefold {
namespace {

Status answer_batch(const RunBatchCommand& command) {
  if (command.json && command.output == "-") {
    return bad_input("--json: standard output is taken by --output-file -");
  }
  // Long before the model: a mistyped name should not wait for it.
  if (command.input != "-" && ::access(command.input.c_str(), R_OK) != 0) {
    return io_error("--input-file: {} cannot be read: {}", command.input, std::strerror(errno));
  }
  if (command.output != "-" && ::access(command.output.c_str(), W_OK) != 0) {
    const Status writable = errno == ENOENT
                                ? check_writable(command.output)
                                : io_error("{}: {}", command.output, std::strerror(errno));
    if (!writable.ok()) return with_context(writable, "--output-file");
  }
  EngineOptions engine = command.engine;
  PF_ASSIGN(engine.model, resolve_model(engine.model));
  PF_ASSIGN(const EngineSetup setup, load_for_engine(engine, {.allow_packing_off = false}));
  log::info("{}: loaded in {:.2f} s", setup.model.path, setup.model.load_seconds);
  PF_ASSIGN(const auto core, EngineCore::start(*setup.model.network, setup.config));
  ServerOptions options;
  options.tool_call_parser = command.tool_call_parser;
  options.auto_tool_choice = command.auto_tool_choice;
  options.reasoning_parser = command.reasoning_parser;
  options.served_model_names = {setup.model.name};
  PF_ASSIGN(const BatchCounts counts,
            run_batch_file(setup.model, *core, options, command.input, command.output));
  log::info("{} requests: {} completed, {} failed", counts.requests, counts.completed,
            counts.failed);
  if (command.json) {
    print_text(stdout, dump_json({{"requests", counts.requests},
                                  {"completed", counts.completed},
                                  {"failed", counts.failed}}) +
                           "\n");
    if (!stdout_ok()) return io_error("standard output does not take the answer");
  }
  return ok_status();
}

}  // namespace

int run_run_batch(const RunBatchCommand& command) {
  const Status done = answer_batch(command);
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
