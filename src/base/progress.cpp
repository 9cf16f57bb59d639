#include "base/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace pagefold {

Progress::Progress(std::string label, uint64_t total, bool unit_bytes)
    : label_(std::move(label)),
      total_(total),
      bytes_(unit_bytes),
      terminal_(::isatty(2) == 1),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (terminal_ && drawn_ != std::chrono::steady_clock::time_point{}) draw(true);
}

void Progress::set(uint64_t done) {
  done_ = done;
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  draw(false);
}

void Progress::draw(bool last) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double scale = bytes_ ? 1.0 / (1 << 20) : 1.0;
  const char* unit = bytes_ ? " MiB" : "";
  std::string line = fmt::format("\r{} ", label_);
  if (total_ > 0) {
    const double fraction = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
    const int filled = static_cast<int>(fraction * 30);
    line += fmt::format("[{:=<{}}{:<{}}] {:3.0f}% ", "", filled, "", 30 - filled, fraction * 100);
  }
  line += fmt::format("{:.0f}{}", static_cast<double>(done_) * scale, unit);
  if (seconds > 0.5)
    line += fmt::format(", {:.1f}{}/s", static_cast<double>(done_) * scale / seconds, unit);
  line += last ? "\x1b[K\n" : "\x1b[K";
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace pagefold
