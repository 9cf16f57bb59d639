// Builds safetensors files in memory for tests: valid ones, and broken ones with raw_safetensors.
//
//   SafetensorsWriter w;
//   w.add_tensor("model.norm.weight", TensorType::F32, {n}, bytes);
//   w.write_to(folder / "model.safetensors");
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/tensor_file.h"
#include "support/gguf_writer.h"

namespace pagefold::testing {

// u64 length, the header text as it is, the data.
inline Bytes raw_safetensors(std::string_view header, const Bytes& data = {}) {
  Bytes out;
  append_gguf_string(out, header);
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

class SafetensorsWriter {
 public:
  // shape outermost first. Plain types only.
  void add_tensor(const std::string& name, TensorType type, const std::vector<int64_t>& shape,
                  const Bytes& bytes) {
    const size_t begin = data_.size();
    data_.insert(data_.end(), bytes.begin(), bytes.end());
    header_[name] = {{"dtype", std::string(tensor_type_info(type).name)},
                     {"shape", shape},
                     {"data_offsets", {begin, data_.size()}}};
  }
  void add_metadata(const std::string& key, const std::string& value) {
    header_["__metadata__"][key] = value;
  }
  Bytes finish() const {
    std::string text = dump_json(header_);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return raw_safetensors(text, data_);
  }
  void write_to(const std::filesystem::path& path) const { write_bytes(path, finish()); }

 private:
  Json header_ = Json::object();
  Bytes data_;
};

}  // namespace pagefold::testing
