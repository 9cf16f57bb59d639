// The files beside the weights: configuration, tokenizer, chat template.
#pragma once

#include "base/dtype.h"
#include "base/json.h"
#include "quantize/output_folder.h"
#include "quantize/source_model.h"

namespace pagefold {

// From a GGUF source they are made, from a folder they are copied (config.json with the new dtype).
// quantization: what config.json says under quantization_config; null: nothing.
Status write_text_files(const SourceModel& source, DType dtype, const Json& quantization,
                        OutputFolder& out);

}  // namespace pagefold
