// The architectures the engine runs: a table (architectures.def) of names and the few switches that
// tell them apart.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagefold {

struct ArchSwitches {
  bool gguf_rope_adjacent =
      false;  // GGUF converters permute q and k so that pairs are adjacent; HF files never do
  bool qkv_bias = false;  // q, k, v always have a bias
  bool qk_norm = false;   // RMS norm of every q and k head before the rotation
};

struct Architecture {
  std::string_view name;
  std::string_view gguf_name;
  std::vector<std::string_view> hf_classes;
  ArchSwitches switches;
};

std::span<const Architecture> architectures();
// Unknown: an error that names it and lists the known ones.
Result<const Architecture*> find_gguf_architecture(std::string_view name);
Result<const Architecture*> find_hf_architecture(std::string_view class_name);

}  // namespace pagefold
