#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace pagefold {

void check_failed(const char* file, int line, const char* expr, std::string_view note) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%.*s\n", file, line, expr,
               note.empty() ? "" : ": ", static_cast<int>(note.size()), note.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace pagefold
