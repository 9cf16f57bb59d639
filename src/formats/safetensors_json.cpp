#include "formats/safetensors_json.h"

#include <simdjson.h>

#include <array>
#include <utility>

#include "formats/tensor_table.h"

namespace pagefold {
namespace {

namespace sj = simdjson::dom;

constexpr size_t kMaxDepth = 8;
constexpr size_t kMaxIndexDepth = 64;  // the index may carry anything beside its weight_map
constexpr size_t kMaxTensorDims = 8;

constexpr std::array<std::pair<std::string_view, TensorType>, 9> kDtypes = {{
    {"F32", TensorType::F32},
    {"F16", TensorType::F16},
    {"BF16", TensorType::BF16},
    {"I8", TensorType::I8},
    {"U8", TensorType::U8},
    {"I32", TensorType::I32},
    {"I64", TensorType::I64},
    {"F8_E4M3", TensorType::F8_E4M3},
    {"F8_E5M2", TensorType::F8_E5M2},
}};

Result<sj::object> parse_object(sj::parser& parser, std::string_view json, size_t max_depth) {
  if (parser.allocate(json.size() + 1, max_depth) != simdjson::SUCCESS) {
    return exhausted("no memory for a JSON text of {} bytes", json.size());
  }
  auto document = parser.parse(json.data(), json.size());
  if (document.error() != simdjson::SUCCESS) {
    return bad_data("invalid JSON: {}", simdjson::error_message(document.error()));
  }
  auto object = document.get_object();
  if (object.error() != simdjson::SUCCESS) return bad_data("the JSON is not an object");
  return object.value_unsafe();
}

Result<TensorType> read_dtype(const sj::element& value) {
  std::string_view word;
  if (value.get(word) != simdjson::SUCCESS) return bad_data("dtype is not a string");
  for (const auto& [name, type] : kDtypes) {
    if (name == word) return type;
  }
  return unsupported("dtype {} is not supported", quote_name(word));
}

Status read_shape(const sj::element& value, std::vector<int64_t>& shape) {
  sj::array dims;
  if (value.get(dims) != simdjson::SUCCESS) return bad_data("shape is not an array");
  for (const auto dim : dims) {
    int64_t n = 0;
    if (shape.size() == kMaxTensorDims)
      return bad_data("shape has more than {} dims", kMaxTensorDims);
    if (dim.get(n) != simdjson::SUCCESS || n < 0) {
      return bad_data("dim {} of shape is not an integer in 0 to 2^63 - 1", shape.size());
    }
    shape.push_back(n);
  }
  return ok_status();
}

Status read_offsets(const sj::element& value, SafetensorsEntry& entry) {
  sj::array offsets;
  if (value.get(offsets) != simdjson::SUCCESS || offsets.size() != 2 ||
      offsets.at(0).get(entry.begin) != simdjson::SUCCESS ||
      offsets.at(1).get(entry.end) != simdjson::SUCCESS || entry.begin > entry.end) {
    return bad_data("data_offsets is not [begin, end] with begin <= end");
  }
  return ok_status();
}

Status read_entry(const sj::element& value, SafetensorsEntry& entry) {
  sj::object fields;
  if (value.get(fields) != simdjson::SUCCESS) return bad_data("its entry is not an object");
  int dtypes = 0, shapes = 0, offsets = 0;
  for (const auto [key, field] : fields) {
    if (key == "dtype" && dtypes++ == 0) {
      PF_ASSIGN(entry.type, read_dtype(field));
    } else if (key == "shape" && shapes++ == 0) {
      PF_TRY(read_shape(field, entry.shape));
    } else if (key == "data_offsets" && offsets++ == 0) {
      PF_TRY(read_offsets(field, entry));
    } else {
      return bad_data("field {} is unknown or occurs twice", quote_name(key));
    }
  }
  if (dtypes != 1 || shapes != 1 || offsets != 1) {
    return bad_data("one of dtype, shape and data_offsets is missing");
  }
  PF_ASSIGN(const uint64_t bytes, checked_tensor_bytes(entry.type, entry.shape));
  if (bytes != entry.end - entry.begin) {
    return bad_data("data_offsets span {} bytes, dtype and shape need {}", entry.end - entry.begin,
                    bytes);
  }
  return ok_status();
}

Status check_metadata(const sj::element& value) {
  sj::object fields;
  if (value.get(fields) != simdjson::SUCCESS) return bad_data("__metadata__ is not an object");
  for (const auto [key, field] : fields) {
    if (!field.is_string()) {
      return bad_data("__metadata__: the value of {} is not a string", quote_name(key));
    }
  }
  return ok_status();
}

// A name inside the folder: nothing that a path could leave it by.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Result<WeightMap> read_weight_map(const sj::object& fields) {
  WeightMap map;
  for (const auto [key, field] : fields) {
    std::string_view file;
    if (field.get(file) != simdjson::SUCCESS) {
      return bad_data("weight_map: the value of {} is not a string", quote_name(key));
    }
    if (!is_plain_file_name(file)) {
      return bad_data(
          "weight_map: {} is kept in {}, which is not the name of a file in this folder",
          quote_name(key), quote_name(file));
    }
    if (!map.emplace(key, file).second) {
      return bad_data("weight_map: tensor {} occurs twice", quote_name(key));
    }
  }
  return map;
}

}  // namespace

Result<std::vector<SafetensorsEntry>> parse_safetensors_header(std::string_view json) {
  sj::parser parser;
  PF_ASSIGN(const sj::object fields, parse_object(parser, json, kMaxDepth));
  std::vector<SafetensorsEntry> entries;
  int metadata = 0;
  for (const auto [key, value] : fields) {
    if (key == "__metadata__") {
      if (metadata++ > 0) return bad_data("__metadata__ occurs twice");
      PF_TRY(check_metadata(value));
      continue;
    }
    if (key.empty()) return bad_data("a tensor has an empty name");
    SafetensorsEntry& entry = entries.emplace_back();
    entry.name = key;
    if (Status s = read_entry(value, entry); !s.ok()) {
      return with_context(s, fmt::format("tensor {}", quote_name(key)));
    }
  }
  return entries;
}

Result<WeightMap> parse_safetensors_index(std::string_view json) {
  sj::parser parser;
  PF_ASSIGN(const sj::object fields, parse_object(parser, json, kMaxIndexDepth));
  Result<WeightMap> map = bad_data("no weight_map");
  int found = 0;
  for (const auto [key, value] : fields) {
    if (key != "weight_map") continue;
    if (found++ > 0) return bad_data("weight_map occurs twice");
    sj::object entries;
    if (value.get(entries) != simdjson::SUCCESS) return bad_data("weight_map is not an object");
    map = read_weight_map(entries);
    if (!map.ok()) return map;
    if (map->empty()) return bad_data("weight_map is empty");
  }
  return map;
}

}  // namespace pagefold
