// A model's layers from the metadata of a GGUF file.
#pragma once

#include "calc/layers.h"
#include "formats/gguf.h"

namespace pagefold {

// Unknown architectures and missing keys are refused by name.
Result<calc::Model> calc_model_from_gguf(const GgufFile& file);

}  // namespace pagefold
