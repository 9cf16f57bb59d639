#include "model/architectures.h"

#include <algorithm>

namespace pagefold {
namespace {

#define PF_UNWRAP(...) __VA_ARGS__

const std::vector<Architecture>& table() {
  static const std::vector<Architecture> all = {
#define PF_ARCHITECTURE(name, gguf, classes, switches) \
  Architecture{name, gguf, std::vector<std::string_view> PF_UNWRAP classes, PF_UNWRAP switches},
#include "model/architectures.def"
#undef PF_ARCHITECTURE
  };
  return all;
}

}  // namespace

std::span<const Architecture> architectures() { return table(); }

Result<const Architecture*> find_gguf_architecture(std::string_view name) {
  std::string known;
  for (const Architecture& a : table()) {
    if (a.gguf_name == name) return &a;
    known += known.empty() ? "" : ", ";
    known += a.gguf_name;
  }
  return unsupported("architecture '{}' is not supported; known: {}", name, known);
}

Result<const Architecture*> find_hf_architecture(std::string_view class_name) {
  std::string known;
  for (const Architecture& a : table()) {
    for (const std::string_view c : a.hf_classes) {
      if (c == class_name) return &a;
      known += known.empty() ? "" : ", ";
      known += c;
    }
  }
  return unsupported("architecture '{}' is not supported; known: {}", class_name, known);
}

}  // namespace pagefold
