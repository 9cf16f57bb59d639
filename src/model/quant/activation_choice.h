// --activations over a whole checkpoint, before any weight is read: the rule of loading, asked of
// every kind of matrix that the checkpoint has.
#pragma once

#include <span>
#include <string>

#include "backend/backend.h"
#include "formats/tensor_file.h"
#include "model/quant/quant_config.h"

namespace pagefold {

// auto, 16 or int8.
Result<Activations> parse_activations(const std::string& word);

// What the inputs of the quantised matrices become: int8 where one of them at least takes that,
// bits16 also where nothing is quantised. types: of the file's tensors. Errors: int8 was asked for
// and one of them cannot be multiplied with it.
Result<Activations> choose_activations(const QuantConfig& quant, std::span<const TensorType> types,
                                       Activations wanted);

}  // namespace pagefold
