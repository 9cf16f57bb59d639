// deps: pagefold_formats
// One GGUF file in memory: whatever opens, every tensor's bytes are read and some are unpacked.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "formats/quant/block_types.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pagefold;
  // A copy of exactly this size, so that reading past the end is seen.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  const auto file = GgufFile::parse(bytes, "fuzz.gguf");
  if (!file.ok()) return 0;
  for (const auto& [key, value] : file->metadata()) {
    (void)to_display(value, size % 64);
    (void)file->get_int(key, 0);
    (void)file->get_float(key, 0);
    (void)file->get_string(key, "");
  }
  for (const TensorInfo& tensor : file->tensors()) {
    const TensorTypeInfo& info = tensor_type_info(tensor.type);
    if (tensor.type > TensorType::Q6_K) continue;
    std::vector<float> out(static_cast<size_t>(info.block_elements));
    const auto blocks = static_cast<int64_t>(tensor.data.size()) / info.block_bytes;
    for (const int64_t block : {int64_t{0}, blocks - 1}) {
      dequantize(tensor.type, tensor.data.data() + block * info.block_bytes, info.block_elements,
                 out.data());
    }
    if (file->find(tensor.name) != &tensor) __builtin_trap();
  }
  return 0;
}
