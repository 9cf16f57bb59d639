#include "formats/safetensors.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <system_error>
#include <utility>

#include "formats/byte_cursor.h"
#include "formats/safetensors_json.h"
#include "formats/tensor_table.h"

namespace pagefold {
namespace {

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kEnd = ".safetensors";
constexpr size_t kMaxShards = 4096;

// The format wants the ranges to cover the data without holes or overlaps, in any order of names.
Status check_cover(const std::vector<SafetensorsEntry>& entries, size_t data_bytes) {
  std::vector<const SafetensorsEntry*> order;
  order.reserve(entries.size());
  for (const SafetensorsEntry& e : entries) order.push_back(&e);
  std::sort(order.begin(), order.end(), [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t at = 0;
  for (const SafetensorsEntry* e : order) {
    if (e->begin != at) {
      return bad_data("tensor {}: data_offsets begin at {}, the tensor before it ends at {}",
                      quote_name(e->name), e->begin, at);
    }
    at = e->end;
    if (at > data_bytes) {
      return bad_data("tensor {}: data_offsets end at {}, the file's data has {} bytes",
                      quote_name(e->name), at, data_bytes);
    }
  }
  if (at != data_bytes) {
    return bad_data("the tensors cover {} bytes, the file's data has {}", at, data_bytes);
  }
  return ok_status();
}

Result<std::vector<TensorInfo>> parse_bytes(std::span<const std::byte> bytes) {
  ByteCursor in(bytes);
  uint64_t length = 0;
  if (!in.read(length)) return bad_data("not a safetensors file: only {} bytes", bytes.size());
  if (length > in.left()) {
    return bad_data("header length {}, but the file has only {} more bytes", length, in.left());
  }
  if (length > kMaxSafetensorsJson) {
    return unsupported("header length {}; the limit is {}", length, kMaxSafetensorsJson);
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + sizeof length;
  if (length < 2 || text[0] != '{') {
    return bad_data("not a safetensors file: the header does not begin with '{{'");
  }
  auto entries = parse_safetensors_header({text, static_cast<size_t>(length)});
  if (!entries.ok()) return with_context(entries.status(), "header");
  const std::span<const std::byte> data = bytes.subspan(sizeof length + length);
  PF_TRY(check_cover(*entries, data.size()));
  std::vector<TensorInfo> tensors;
  tensors.reserve(entries->size());
  for (SafetensorsEntry& e : *entries) {
    TensorInfo& tensor = tensors.emplace_back();
    tensor.name = std::move(e.name);
    tensor.type = e.type;
    tensor.shape = std::move(e.shape);
    tensor.data = data.subspan(e.begin, e.end - e.begin);
  }
  return tensors;
}

Result<std::vector<TensorInfo>> parse_file(std::span<const std::byte> bytes,
                                           const std::string& name) {
  auto tensors = parse_bytes(bytes);
  if (!tensors.ok()) return with_context(tensors.status(), name);
  for (TensorInfo& tensor : *tensors) tensor.file = name;
  return tensors;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// "model-00002-of-00003.safetensors" -> the names of all three; empty for any other name.
std::vector<std::string> siblings(const std::string& file) {
  constexpr size_t kTail = 1 + 5 + 4 + 5;  // -00002-of-00003
  if (file.size() <= kEnd.size() + kTail) return {};
  const std::string stem = file.substr(0, file.size() - kEnd.size() - kTail);
  const std::string_view tail = std::string_view(file).substr(stem.size(), kTail);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return {};
  size_t count = 0;
  const auto [end, error] = std::from_chars(tail.data() + 10, tail.data() + kTail, count);
  if (error != std::errc() || end != tail.data() + kTail || count > kMaxShards) return {};
  std::vector<std::string> names;
  for (size_t i = 1; i <= count; ++i) {
    names.push_back(fmt::format("{}-{:05}-of-{:05}{}", stem, i, count, kEnd));
  }
  return names;
}

// Every *.safetensors of the folder, in the order of their names.
Result<std::vector<std::string>> list_files(const std::filesystem::path& folder) {
  std::error_code error;
  std::set<std::string> names;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(kEnd)) names.insert(name);
    if (names.size() > kMaxShards) {
      return unsupported("{}: more than {} safetensors files", folder.string(), kMaxShards);
    }
  }
  if (error) return io_error("{}: {}", folder.string(), error.message());
  if (names.empty()) {
    return not_found("{}: no {}, no {} and no other safetensors file", folder.string(), kSingle,
                     kIndex);
  }
  for (const std::string& name : names) {
    for (const std::string& sibling : siblings(name)) {
      if (!names.contains(sibling)) {
        return not_found("{}: {} is here, but {} is missing", folder.string(), name, sibling);
      }
    }
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Result<WeightMap> read_index(const std::filesystem::path& path) {
  PF_ASSIGN(const std::string text, read_file(path, kMaxSafetensorsJson));
  auto map = parse_safetensors_index(text);
  if (!map.ok()) return with_context(map.status(), path.string());
  return map;
}

Result<std::vector<std::string>> shards_of(const WeightMap& map, const std::string& index) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  if (names.size() > kMaxShards) {
    return unsupported("{}: more than {} shards", index, kMaxShards);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace

Result<SafetensorsSet> SafetensorsSet::parse(std::span<const std::byte> bytes, std::string name) {
  SafetensorsSet set;
  PF_ASSIGN(set.tensors_, parse_file(bytes, name));
  PF_ASSIGN(set.index_, index_tensors(set.tensors_));
  return set;
}

Result<SafetensorsSet> SafetensorsSet::open(const std::filesystem::path& folder) {
  WeightMap map;
  std::vector<std::string> files = {std::string(kSingle)};
  const std::filesystem::path index = folder / kIndex;
  if (!is_there(folder / kSingle)) {
    if (is_there(index)) {
      PF_ASSIGN(map, read_index(index));
      PF_ASSIGN(files, shards_of(map, index.string()));
    } else {
      PF_ASSIGN(files, list_files(folder));
    }
  }
  SafetensorsSet set;
  std::set<std::string_view> found;  // names of the index seen where it says, owned by `map`
  for (const std::string& file : files) {
    auto opened = MappedFile::open(folder / file);
    if (!opened.ok()) {
      return map.empty() ? opened.status() : with_context(opened.status(), index.string());
    }
    PF_ASSIGN(std::vector<TensorInfo> tensors, parse_file(opened->bytes(), opened->path()));
    for (TensorInfo& tensor : tensors) {
      const auto it = map.find(tensor.name);
      if (it != map.end() && it->second != file) continue;  // a stale copy: the index knows better
      if (it != map.end()) found.insert(it->first);
      set.tensors_.push_back(std::move(tensor));
    }
    set.maps_.push_back(*std::move(opened));
  }
  for (const auto& [tensor, file] : map) {
    if (!found.contains(tensor)) {
      return bad_data("{}: weight_map says that tensor {} is in {}, but it is not there",
                      index.string(), quote_name(tensor), file);
    }
  }
  PF_ASSIGN(set.index_, index_tensors(set.tensors_));
  return set;
}

const TensorInfo* SafetensorsSet::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

void SafetensorsSet::drop_pages() const {
  for (const MappedFile& map : maps_) map.drop_pages();
}

}  // namespace pagefold
