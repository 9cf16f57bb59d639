// The JSON of safetensors files, read straight into tables: no tree in between, duplicates refused.
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

// Headers and indices beyond this are refused: parsing needs up to 12 times the text in memory, and
// 16 MiB is some 130,000 tensors.
constexpr size_t kMaxSafetensorsJson = size_t{16} << 20;

struct SafetensorsEntry {
  std::string name;
  TensorType type = TensorType::F32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the end of the header
  uint64_t end = 0;
};

// {name: {"dtype", "shape", "data_offsets"}, "__metadata__": {string: string}}. Each entry's size
// equals its shape's; the ranges are not compared with each other here. Errors name the tensor.
Result<std::vector<SafetensorsEntry>> parse_safetensors_header(std::string_view json);

// The "weight_map" of model.safetensors.index.json: tensor -> file name. Only plain names of files
// in the same folder pass. Errors name the field.
using WeightMap = std::map<std::string, std::string, std::less<>>;
Result<WeightMap> parse_safetensors_index(std::string_view json);

}  // namespace pagefold
