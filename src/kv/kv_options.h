// The compression wishes of a request, checked in one place.
#pragma once

#include "base/result.h"
#include "pagefold/options.h"

namespace pagefold {

// kInvalidArgument naming the unknown key or value and what is allowed. Known: policy = full.
Status check_kv_options(const KvOptions& options);

}  // namespace pagefold
