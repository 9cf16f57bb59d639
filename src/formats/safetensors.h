// Safetensors: u64 header length, JSON header {name: {dtype, shape, data_offsets}}, data. One file,
// or several with model.safetensors.index.json. Every tensor of the index must be present, every
// file named must exist. Source of the format: the safetensors project's README.
// Limits of this reader: 16 MiB of header or index, 4,096 files, 8 dims.
// A tensor that its shard has and the index does not name is kept; a copy in another shard than the
// index says is not. Duplicate names are errors.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "formats/tensor_file.h"

namespace pagefold {

class SafetensorsSet {
 public:
  // folder: reads model.safetensors, or the index and its shards, or every *.safetensors when there
  // is no index.
  static Result<SafetensorsSet> open(const std::filesystem::path& folder);
  static Result<SafetensorsSet> parse(std::span<const std::byte> bytes,
                                      std::string name);  // one file; fuzzing

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  void drop_pages() const;

 private:
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::vector<MappedFile> maps_;
};

}  // namespace pagefold
