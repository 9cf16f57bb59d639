// deps: pagefold_formats
// One safetensors file in memory: whatever opens, the tensors tile the data exactly.
#include <cstdint>
#include <vector>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pagefold;
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  const auto set = SafetensorsSet::parse(bytes, "fuzz.safetensors");
  if (!set.ok()) return 0;
  size_t total = 0;
  volatile unsigned sink = 0;
  for (const TensorInfo& tensor : set->tensors()) {
    total += tensor.data.size();
    for (const std::byte b : tensor.data) sink = sink + static_cast<unsigned>(b);
    if (set->find(tensor.name) != &tensor) __builtin_trap();
  }
  if (total >= bytes.size()) __builtin_trap();
  return 0;
}
