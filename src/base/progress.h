// A progress bar on stderr, drawn only when stderr is a terminal. At most ten redraws a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace pagefold {

class Progress {
 public:
  // total 0: unknown, a counter is shown instead of a bar. unit_bytes: print MiB and MiB/s.
  Progress(std::string label, uint64_t total, bool unit_bytes = false);
  ~Progress();  // leaves the last line standing
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void set(uint64_t done);

 private:
  void draw(bool last);
  std::string label_;
  uint64_t total_, done_ = 0;
  bool bytes_, terminal_;
  std::chrono::steady_clock::time_point start_, drawn_{};
};

}  // namespace pagefold
