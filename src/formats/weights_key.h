// A name for the weights of a model, whatever the file around them says: what was measured on them
// is found again under it.
#pragma once

#include <span>
#include <string>

#include "formats/tensor_file.h"

namespace pagefold {

// 16 hex digits: XXH3 (64 bits) over all tensors in the order of their names, of each the name, the
// type, the shape and its bytes; of more than 16 KiB four strips of 4 KiB are read, spread evenly
// from the first byte to the last. That takes milliseconds, and training leaves no tensor's strips
// as they were; an edit of single values may go unseen.
std::string weights_key(std::span<const TensorInfo> tensors);

}  // namespace pagefold
