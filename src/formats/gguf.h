// GGUF v2 and v3 files, little-endian, single or split (name-00001-of-00005.gguf).
// Format: magic "GGUF", u32 version, u64 tensor count, u64 key count, typed key/values, tensor
// table (name, dims fastest first, type, offset), data aligned to general.alignment (default 32).
// All counts and lengths are checked against the bytes left in the file before anything is
// allocated. Source of the format: the GGUF specification of the ggml project.
// Limits of this reader: 65,536 keys, 131,072 tensors a file, 4,194,304 array elements in all.
// A split model needs every part beside the one named; its metadata is the first part's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "formats/tensor_file.h"

namespace pagefold {

// One metadata value. Integers are widened; arrays are of one element type.
using GgufValue = std::variant<bool, uint64_t, int64_t, double, std::string, std::vector<bool>,
                               std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>>;

class GgufFile {
 public:
  // Opens the file and, when it is a part of a split model, its siblings.
  static Result<GgufFile> open(const std::filesystem::path& path);
  // For fuzzing and tests: parses one in-memory file; data spans point into `bytes`.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name);

  uint32_t version() const { return version_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;

  // Typed look-ups: absent -> fallback; present with another type -> error naming file and key.
  // get_float also takes integers.
  Result<std::string> get_string(std::string_view key, std::string fallback) const;
  Result<int64_t> get_int(std::string_view key, int64_t fallback) const;
  Result<double> get_float(std::string_view key, double fallback) const;
  Result<bool> get_bool(std::string_view key, bool fallback) const;
  const GgufValue* get(std::string_view key) const;
  const std::string& name() const { return name_; }
  void drop_pages() const;  // the mapped bytes are no longer wanted

 private:
  static Result<GgufFile> open_split(const std::filesystem::path& path);

  std::string name_;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::vector<MappedFile> maps_;
};

// A short printable form of a value, for `inspect`: long arrays and strings are cut.
std::string to_display(const GgufValue& value, size_t max_chars = 120);

}  // namespace pagefold
