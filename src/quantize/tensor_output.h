// Unquantised tensors on their way into a checkpoint: rounded to its dtype.
#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype_bits.h"
#include "quantize/safetensors_writer.h"
#include "quantize/source_model.h"

namespace pagefold {

TensorType tensor_type_of(DType dtype);
// The bytes of n values in dtype (float32, float16, bfloat16), to nearest even.
std::vector<std::byte> encode_plain(DType dtype, const float* values, int64_t n);
// In place: what a reader of encode_plain gets.
void round_to(DType dtype, float* values, int64_t n);

// Copies a tensor of the source, a few rows at a time. Values that become infinite in float16 are
// an error that names the tensor.
Status copy_tensor(const SourceModel& source, const SourceTensor& t, DType dtype,
                   SafetensorsWriter& out);

}  // namespace pagefold
