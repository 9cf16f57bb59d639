// The `usage.kv` object, one shape for the server and the command line.
#pragma once

#include <string>

#include "pagefold/usage.h"

namespace pagefold {

std::string kv_usage_json(const KvUsage& usage);
// Sums of several answers (n > 1, several prompts); names and maxima are the first's and the
// largest.
void add_usage(KvUsage& sum, const KvUsage& one);

}  // namespace pagefold
