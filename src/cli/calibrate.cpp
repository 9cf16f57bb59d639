#include <chrono>
#include <cmath>

#include "api/calibration.h"
#include "api/calibrations.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pull/cache.h"

namespace pagefold {
namespace {

constexpr size_t kMaxCorpusBytes = 256 << 20;

// Mean over all heads of |E q_f| / E |q_f|, weighted by E |q_f|: 1 where queries of a band always
// point the same way, and keys can be scored without seeing a query.
double concentration(const CalibrationStats& s) {
  double centre = 0, size = 0;
  for (size_t i = 0; i < s.re.size(); ++i) {
    centre += std::hypot(double{s.re[i]}, double{s.im[i]});
    size += double{s.abs[i]};
  }
  return size > 0 ? centre / size : 0;
}

Status calibrate_command(const CalibrateCommand& command) {
  EngineOptions engine = command.engine;
  CalibrationOptions options;
  options.tokens = command.tokens;
  options.seed = command.seed;
  if (!command.text.empty()) {
    PF_ASSIGN(options.text, read_file(command.text, kMaxCorpusBytes));
    if (options.text.empty()) return bad_input("{}: the text is empty", command.text);
  }
  PF_ASSIGN(engine.model, resolve_model(engine.model));
  std::filesystem::path output;
  PF_ASSIGN(LoadedModel model,
            load_model(engine, [&](const ModelFiles& files, const LoadedModel&) -> Status {
              PF_ASSIGN(output, calibration_output(command.output, files));
              return check_writable(output.string());
            }));
  std::unique_ptr<Progress> bar;
  options.progress = [&](int64_t done, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>("calibrating", static_cast<uint64_t>(total));
    bar->set(static_cast<uint64_t>(done));
  };
  const auto start = std::chrono::steady_clock::now();
  PF_ASSIGN(const CalibrationStats stats, calibrate(model, options));
  bar.reset();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string bytes = write_calibration(stats);
  PF_TRY(write_file_atomic(output, bytes));
  if (command.json) {
    const Json out = {{"output", output.string()},
                      {"model", stats.model},
                      {"tokens", stats.rows},
                      {"layers", stats.n_layers},
                      {"heads", stats.n_heads},
                      {"bands", stats.bands},
                      {"bytes", bytes.size()},
                      {"concentration", concentration(stats)},
                      {"own_text", command.text.empty()},
                      {"seconds", seconds}};
    print_text(stdout, dump_json(out) + "\n");
  } else {
    print_text(
        stdout,
        fmt::format("{}: statistics of {} queries of {} layers x {} heads, concentration {:.3f}\n",
                    output.string(), stats.rows, stats.n_layers, stats.n_heads,
                    concentration(stats)));
  }
  return stdout_ok() ? ok_status() : io_error("standard output does not take the answer");
}

}  // namespace

int run_calibrate(const CalibrateCommand& command) {
  const Status done = calibrate_command(command);
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
