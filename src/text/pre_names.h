// The pre-tokenizers that GGUF files name (tokenizer.ggml.pre). A name stands for patterns that cut
// one after the other; a file whose name is not here cannot be tokenized faithfully and is refused.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagefold {

struct NamedPre {
  std::vector<std::string_view> patterns;
  bool ignore_merges = false;
  bool adds_bos = false;  // when the file does not say
};

// "" is "default". Unknown names: the error lists those that are known.
Result<NamedPre> find_named_pre(std::string_view name);

}  // namespace pagefold
