// What both readers need: checked tensor sizes, the name index, and names made fit for messages.
// Private to src/formats.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tensor_file.h"

namespace pagefold {

using TensorIndex = std::map<std::string, size_t, std::less<>>;

// Bytes of a tensor of this type and shape (outermost first). Refuses products beyond 2^63 - 1 and
// rows that are not whole blocks; the message speaks of "shape" and leaves the name to the caller.
Result<uint64_t> checked_tensor_bytes(TensorType type, const std::vector<int64_t>& shape);

// name -> position. A name that occurs twice is an error naming the tensor and both files.
Result<TensorIndex> index_tensors(const std::vector<TensorInfo>& tensors);

// A name from a file in single quotes: control bytes and quotes as \xNN, cut after 80 bytes.
std::string quote_name(std::string_view name);

}  // namespace pagefold
