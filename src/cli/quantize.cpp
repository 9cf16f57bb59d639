#include "quantize/quantize.h"

#include <atomic>
#include <chrono>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/pull/cache.h"

namespace pagefold {
namespace {

constexpr size_t kMaxTextBytes = 256 << 20;

Json report_json(const QuantizeReport& r, bool own_text, double seconds) {
  Json out = {{"output", r.output},
              {"method", r.method},
              {"dtype", r.dtype},
              {"tensors", r.tensors},
              {"source_bytes", r.source_bytes},
              {"bytes", r.bytes},
              {"bits_per_weight", r.bits_per_weight},
              {"linear_bits_per_weight", r.linear_bits},
              {"calibration_tokens", r.calibration_tokens},
              {"own_text", own_text},
              {"seconds", seconds}};
  if (r.kld) {
    out["eval_tokens"] = r.kld->tokens;
    out["kld_mean"] = r.kld->mean;
    out["kld_p99"] = r.kld->p99;
    out["top1"] = r.kld->top1;
  }
  return out;
}

std::string report_text(const QuantizeReport& r, double seconds) {
  std::string text = fmt::format(
      "{}: {}, {} tensors, {:.1f} MB, {:.2f} bits a weight ({:.2f} in the layers), {:.1f} s\n",
      r.output, r.method, r.tensors, static_cast<double>(r.bytes) / 1e6, r.bits_per_weight,
      r.linear_bits, seconds);
  if (r.kld) {
    text += fmt::format(
        "against the source on {} tokens: KLD mean {:.3e}, 99 % {:.3e}; same top token {:.2f} %\n",
        r.kld->tokens, r.kld->mean, r.kld->p99, 100 * r.kld->top1);
  }
  return text;
}

Status quantize_command(const QuantizeCommand& command) {
  std::atomic<bool> interrupted = false;
  InterruptWatcher interrupts;  // an interrupt ends the work between two steps and tidies up
  interrupts.set([&] { interrupted = true; });
  QuantizeOptions options = command.options;
  options.stop = [&] { return interrupted.load(); };
  if (!command.text_file.empty()) {
    PF_ASSIGN(options.text, read_file(command.text_file, kMaxTextBytes));
    if (options.text.empty()) return bad_input("{}: the text is empty", command.text_file);
  }
  PF_ASSIGN(options.model, resolve_model(options.model));
  std::unique_ptr<Progress> bar;
  std::string label;
  options.progress = [&](std::string_view what, uint64_t done, uint64_t total) {
    if (!bar || label != what) {
      label = what;
      bar = std::make_unique<Progress>(label, total);
    }
    bar->set(done);
  };
  const auto start = std::chrono::steady_clock::now();
  const auto report = quantize(options);
  bar.reset();
  if (!report.ok()) return report.status();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_text(stdout, command.json
                         ? dump_json(report_json(*report, options.text.empty(), seconds)) + "\n"
                         : report_text(*report, seconds));
  return stdout_ok() ? ok_status() : io_error("standard output does not take the answer");
}

}  // namespace

int run_quantize(const QuantizeCommand& command) {
  const Status done = quantize_command(command);
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
