#include "quantize/quantize.h"

#include <chrono>
#include <memory>

#include "base/json.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pull/cache.h"

namespace pagefold {
namespace {

Status quantize_command(const QuantizeCommand& command) {
  QuantizeOptions options;
  PF_ASSIGN(options.model, resolve_model(command.model));
  options.output = command.output;
  options.force = command.force;
  options.method = command.method;
  options.dtype = command.dtype;
  options.max_shard_bytes = command.max_shard_bytes;
  std::unique_ptr<Progress> bar;
  options.progress = [&](uint64_t done, uint64_t total) {
    if (!bar) bar = std::make_unique<Progress>("quantizing", total);
    bar->set(done);
  };
  const auto start = std::chrono::steady_clock::now();
  const auto report = quantize(options);
  bar.reset();
  if (!report.ok()) return report.status();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (command.json) {
    const Json out = {{"output", report->output},
                      {"method", report->method},
                      {"dtype", report->dtype},
                      {"tensors", report->tensors},
                      {"source_bytes", report->source_bytes},
                      {"bytes", report->bytes},
                      {"bits_per_weight", report->bits_per_weight},
                      {"seconds", seconds}};
    print_text(stdout, dump_json(out) + "\n");
  } else {
    print_text(stdout, fmt::format("{}: {} tensors, {:.1f} MB, {:.2f} bits a weight, {:.1f} s\n",
                                   report->output, report->tensors,
                                   static_cast<double>(report->bytes) / 1e6,
                                   report->bits_per_weight, seconds));
  }
  return stdout_ok() ? ok_status() : io_error("standard output does not take the answer");
}

}  // namespace

int run_quantize(const QuantizeCommand& command) {
  const Status done = quantize_command(command);
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
