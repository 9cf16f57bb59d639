// The end of a benchmark's main().
#pragma once

#include <cstdio>

#include "base/result.h"

namespace pagefold {

// Runs it; an error goes to stderr and gives exit status 1.
template <class Run>
int report_status(const Run& run) {
  const Status s = run();
  if (s.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", message_of(s).c_str());
  return 1;
}

}  // namespace pagefold
