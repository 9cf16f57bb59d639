// What --dtype means for a checkpoint: vLLM's rules.
#pragma once

#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/result.h"

namespace pagefold {

// What a checkpoint says of its own type.
struct StoredTypes {
  std::string config;  // dtype (torch_dtype) of config.json; empty: not said
  // Of the unquantised matrices: the first 16-bit one, else float32; none where all are quantised.
  std::optional<DType> tensors;
  std::string model_type;  // the architecture, for those that overflow float16
};

struct DTypeChoice {
  DType dtype = DType::bf16;
  std::string info, warning;  // what to log, or empty
};

// auto: the config's type, else the tensors', else bfloat16; float32 under auto is lowered to
// bfloat16. Any conversion may be asked for: between the two 16-bit types it deserves a warning.
// Errors: an unknown word; float16 for an architecture that overflows it.
Result<DTypeChoice> choose_dtype(const std::string& word, const StoredTypes& stored);

}  // namespace pagefold
