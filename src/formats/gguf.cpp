#include "formats/gguf.h"

#include <charconv>
#include <optional>
#include <utility>

#include "formats/gguf_part.h"
#include "formats/tensor_table.h"

namespace pagefold {
namespace {

constexpr int64_t kMaxParts = 99999;  // five digits in the name

// "model-00002-of-00005.gguf": stem "model", number 2, count 5.
struct PartName {
  std::string stem;
  int64_t number = 0;
  int64_t count = 0;
};

std::optional<int64_t> five_digits(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != 5 || error != std::errc() || end != text.data() + 5 || value < 1) return {};
  return value;
}

std::optional<PartName> split_name(std::string_view file) {
  constexpr std::string_view kEnd = ".gguf";
  constexpr size_t kTail = 1 + 5 + 4 + 5;  // -00002-of-00005
  if (!file.ends_with(kEnd) || file.size() <= kEnd.size() + kTail) return {};
  file.remove_suffix(kEnd.size());
  const std::string_view tail = file.substr(file.size() - kTail);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return {};
  const auto number = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10));
  if (!number || !count || *number > *count) return {};
  return PartName{std::string(file.substr(0, file.size() - kTail)), *number, *count};
}

std::string part_file(const PartName& name, int64_t number) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name.stem, number, name.count);
}

// A part must say what its file name says.
Status check_part(const GgufPart& part, const std::string& file, int64_t number, int64_t count) {
  PF_ASSIGN(const int64_t said_count, metadata_count(part.metadata, "split.count", 1));
  PF_ASSIGN(const int64_t said_number, metadata_count(part.metadata, "split.no", 0));
  if (said_count != count) {
    return bad_data("{}: metadata key 'split.count' is {}, the file's name says {}", file,
                    said_count, count);
  }
  if (said_number != number - 1) {
    return bad_data("{}: metadata key 'split.no' is {}, the file's name says {}", file, said_number,
                    number - 1);
  }
  return ok_status();
}

template <class T>
Status wrong_type(const std::string& file, std::string_view key, std::string_view wanted,
                  const T& value) {
  return bad_data("{}: metadata key {}: expected {}, got {}", file, quote_name(key), wanted,
                  to_display(value));
}

}  // namespace

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  PF_ASSIGN(GgufPart part, parse_gguf_part(bytes, name));
  GgufFile file;
  file.name_ = std::move(name);
  file.version_ = part.version;
  file.metadata_ = std::move(part.metadata);
  file.tensors_ = std::move(part.tensors);
  PF_ASSIGN(file.index_, index_tensors(file.tensors_));
  return file;
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  PF_ASSIGN(MappedFile map, MappedFile::open(path));
  PF_ASSIGN(GgufFile file, parse(map.bytes(), path.string()));
  PF_ASSIGN(const int64_t count, metadata_count(file.metadata_, "split.count", 1));
  const std::optional<PartName> name = split_name(path.filename().string());
  if (count <= 1 && (!name || name->count == 1)) {
    file.maps_.push_back(std::move(map));
    return file;
  }
  if (!name) {
    return bad_data("{}: part of a model split in {}, but not named like -00001-of-{:05}.gguf",
                    file.name_, count, count);
  }
  return open_split(path);
}

const TensorInfo* GgufFile::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

const GgufValue* GgufFile::get(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

Result<std::string> GgufFile::get_string(std::string_view key, std::string fallback) const {
  const GgufValue* value = get(key);
  if (!value) return fallback;
  if (const auto* text = std::get_if<std::string>(value)) return *text;
  return wrong_type(name_, key, "a string", *value);
}

Result<int64_t> GgufFile::get_int(std::string_view key, int64_t fallback) const {
  const GgufValue* value = get(key);
  if (!value) return fallback;
  if (const auto* i = std::get_if<int64_t>(value)) return *i;
  if (const auto* u = std::get_if<uint64_t>(value); u && *u <= INT64_MAX) {
    return static_cast<int64_t>(*u);
  }
  return wrong_type(name_, key, "an integer below 2^63", *value);
}

Result<double> GgufFile::get_float(std::string_view key, double fallback) const {
  const GgufValue* value = get(key);
  if (!value) return fallback;
  if (const auto* d = std::get_if<double>(value)) return *d;
  if (const auto* i = std::get_if<int64_t>(value)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(value)) return static_cast<double>(*u);
  return wrong_type(name_, key, "a number", *value);
}

Result<bool> GgufFile::get_bool(std::string_view key, bool fallback) const {
  const GgufValue* value = get(key);
  if (!value) return fallback;
  if (const auto* b = std::get_if<bool>(value)) return *b;
  return wrong_type(name_, key, "a bool", *value);
}

void GgufFile::drop_pages() const {
  for (const MappedFile& map : maps_) map.drop_pages();
}

Result<GgufFile> GgufFile::open_split(const std::filesystem::path& path) {
  const std::optional<PartName> name = split_name(path.filename().string());
  GgufFile file;
  for (int64_t number = 1; number <= name->count; ++number) {
    const std::filesystem::path part_path = path.parent_path() / part_file(*name, number);
    auto map = MappedFile::open(part_path);
    if (!map.ok()) {
      return with_context(map.status(), fmt::format("part {} of {}", number, name->count));
    }
    PF_ASSIGN(GgufPart part, parse_gguf_part(map->bytes(), map->path()));
    PF_TRY(check_part(part, map->path(), number, name->count));
    if (number == 1) {
      file.name_ = map->path();
      file.version_ = part.version;
      file.metadata_ = std::move(part.metadata);
    }
    for (TensorInfo& tensor : part.tensors) file.tensors_.push_back(std::move(tensor));
    file.maps_.push_back(*std::move(map));
  }
  const auto have = static_cast<int64_t>(file.tensors_.size());
  PF_ASSIGN(const int64_t want, metadata_count(file.metadata_, "split.tensors.count", have));
  if (want != have) {
    return bad_data("{}: metadata key 'split.tensors.count' is {}, the {} parts hold {} tensors",
                    file.name_, want, name->count, have);
  }
  PF_ASSIGN(file.index_, index_tensors(file.tensors_));
  return file;
}

}  // namespace pagefold
